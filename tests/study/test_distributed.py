"""A real Ray cluster of three nodes, one of which dies midway: the results are those of an undisturbed study."""

import json
import time

import pytest

from cppo.study import execute
from cppo.study.definition import Part, Study
from cppo.study.execute import Options

STUDY = Study(
    "spread",
    [
        Part(
            envs=["ProbeBox"],
            algos=["ppo_lag"],
            seeds=6,
            steps=24_000,
            settings={"epochs": 2, "value_epochs": 2, "batch_size": 100, "num_envs": 10},
        )
    ],
)


def rows(folder):
    found = {}
    for path in sorted((folder / "runs").glob("*/metrics.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found[path.parent.name] = [{k: v for k, v in line.items() if k != "seconds"} for line in lines]
    return found


@pytest.mark.slow
def test_a_node_dies_and_the_results_are_the_same(tmp_path):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster as LocalCluster

    from cppo.study.distributed import Cluster

    options = Options(lanes=2, checkpoint_seconds=0.0, show=False)
    execute.execute(STUDY, tmp_path / "whole", options)
    local = LocalCluster(initialize_head=True, head_node_args={"num_cpus": 1})
    others = [local.add_node(num_cpus=1), local.add_node(num_cpus=1)]
    killed = []
    try:
        ray.init(address=local.address, log_to_driver=False)
        spread = Cluster()

        def kill_midway(groups, deadline, options):
            import threading

            def wait_and_kill():
                # All three groups are at work; then a node goes without notice, with the group it was training.
                places = [members[0][1] / "metrics.jsonl" for members in groups]
                while not all(place.exists() and place.stat().st_size > 5000 for place in places):
                    time.sleep(0.05)
                killed.append(sum(len(place.read_text().splitlines()) for place in places))
                local.remove_node(others[0], allow_graceful=False)

            thread = threading.Thread(target=wait_and_kill)
            thread.start()
            spread(groups, deadline, options)
            thread.join()

        done = execute.execute(STUDY, tmp_path / "killed", options, kill_midway)
        assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    finally:
        ray.shutdown()
        local.shutdown()
    assert killed and killed[0] < 3 * 240  # the kill came before the end
    assert (len(done.finished), len(done.unfinished), len(done.failed)) == (6, 0, 0)
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
