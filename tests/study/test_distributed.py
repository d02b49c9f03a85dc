"""Groups on Ray: what dies is tried again, what always dies is recorded, and the others go on.

Most tests have a Ray that runs tasks at once; the slow ones a real cluster of three nodes, one of which dies midway.
"""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cppo.study import distributed, execute
from cppo.study.definition import Part, Study
from cppo.study.distributed import FAILURES, Cluster
from cppo.study.execute import StudyOptions

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
        found[path.parent.name] = [{k: v for k, v in line.items() if k not in ("seconds", "check")} for line in lines]
    return found


class FakeRay:
    """Tasks run when they are waited for; ``work`` is what they do."""

    def __init__(self, work):
        self.exceptions = pytest.importorskip("ray.exceptions")
        self.work, self.cancelled = work, []

    def remote(self, **options):
        assert options["max_retries"] == 0
        return lambda function: SimpleNamespace(remote=lambda recipes, *_: tuple(folder for _, folder in recipes))

    def wait(self, tasks, timeout):
        return tasks[:1], tasks[1:]

    def get(self, task):
        self.work(self.exceptions, [Path(folder) for folder in task])

    def cancel(self, task, force):
        self.cancelled.append(task)


def spread_with(work):
    cluster = object.__new__(Cluster)
    vars(cluster).update(ray=FakeRay(work), cpus=1.0, gpus=0.0)
    return cluster


def finish(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text('{"steps": 24000, "seeds": []}')


def save(folder, iteration):
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "checkpoints" / f"checkpoint-{iteration:08d}.safetensors").touch()


def test_a_run_that_always_kills_its_process_is_recorded_and_the_others_go_on(tmp_path):
    seen = []

    def work(exceptions, folders):
        seen.append([folder.name for folder in folders])
        if any("seed1-" in folder.name for folder in folders):
            raise exceptions.WorkerCrashedError()
        for folder in folders:
            finish(folder)

    done = execute.execute(STUDY, tmp_path, StudyOptions(lanes=2), spread_with(work))
    assert [run.seed for run in done.finished] == [0, 2, 3, 4, 5] and not done.unfinished
    ((run, problem),) = done.failed
    assert run.seed == 1 and "WorkerCrashedError" in problem
    assert sum(len(names) == 2 and "seed1-" in names[1] for names in seen) == FAILURES
    assert sum(len(names) == 1 and "seed1-" in names[0] for names in seen) == FAILURES


def test_a_task_that_raises_is_not_repeated(tmp_path):
    def work(exceptions, folders):
        if any("seed1-" in folder.name for folder in folders):
            raise exceptions.RayTaskError("_run_group", "the traceback", ValueError("no such module there"))
        for folder in folders:
            finish(folder)

    done = execute.execute(STUDY, tmp_path, StudyOptions(lanes=2), spread_with(work))
    assert len(done.finished) == 5
    assert [(run.seed, problem) for run, problem in done.failed] == [(1, "no such module there")]


def test_nodes_may_die_as_often_as_they_like_while_runs_make_headway(tmp_path):
    rounds = 3 * FAILURES
    begun = []

    def work(exceptions, folders):
        begun.append(folders)
        for folder in folders:
            save(folder, len(begun))
            if len(begun) == rounds:
                finish(folder)
        if len(begun) < rounds:
            raise exceptions.NodeDiedError("gone")

    done = execute.execute(STUDY.cut(seeds=1), tmp_path, StudyOptions(), spread_with(work))
    assert (len(done.finished), len(done.failed), len(begun)) == (1, 0, rounds)


def test_an_interrupt_cancels_the_tasks_but_the_deadline_leaves_them_to_save(tmp_path):
    groups = list(execute.pending(STUDY.runs(), tmp_path, StudyOptions(lanes=2)))
    ends = []
    cluster = spread_with(lambda exceptions, folders: ends.append(folders))
    cluster(groups, None, StudyOptions(), lambda: len(ends) > 0)
    assert (len(ends), len(cluster.ray.cancelled)) == (1, 2)
    ends.clear()
    cluster(groups, time.time() - 1.0, StudyOptions(), lambda: True)
    assert (len(ends), len(cluster.ray.cancelled)) == (3, 2)


@pytest.mark.slow
def test_a_real_worker_that_dies_each_time(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(distributed, "FAILURES", 2)

    def run_group(recipes, deadline, options):
        for recipe, folder in recipes:
            if recipe["seed"] == 1:
                os._exit(1)
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "summary.json"), "w") as file:
                file.write('{"steps": 24000}')

    monkeypatch.setattr(distributed, "_run_group", run_group)
    try:
        ray.init(num_cpus=1, log_to_driver=False)
        done = execute.execute(STUDY.cut(seeds=3), tmp_path, StudyOptions(lanes=3), Cluster())
    finally:
        ray.shutdown()
    assert [run.seed for run in done.finished] == [0, 2]
    assert [run.seed for run, _ in done.failed] == [1] and "WorkerCrashedError" in done.failed[0][1]


@pytest.mark.slow
def test_a_node_dies_and_the_results_are_the_same(tmp_path):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster as LocalCluster

    options = StudyOptions(lanes=2, checkpoint_seconds=0.0, show=False)
    execute.execute(STUDY, tmp_path / "whole", options)
    local = LocalCluster(initialize_head=True, head_node_args={"num_cpus": 1})
    others = [local.add_node(num_cpus=1), local.add_node(num_cpus=1)]
    killed = []
    try:
        ray.init(address=local.address, log_to_driver=False)
        spread = Cluster()

        def kill_midway(groups, deadline, options, stop=None):
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
            spread(groups, deadline, options, stop)
            thread.join()

        done = execute.execute(STUDY, tmp_path / "killed", options, kill_midway)
        assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    finally:
        ray.shutdown()
        local.shutdown()
    assert killed and killed[0] < 3 * 240  # the kill came before the end
    assert (len(done.finished), len(done.unfinished), len(done.failed)) == (6, 0, 0)
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
