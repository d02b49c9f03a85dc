"""Evaluation while training changes nothing in it, keeps the best feasible policy, and survives a stop."""

import numpy as np
import pytest

import cppo
from cppo.runs import checkpoint
from cppo.runs.evaluation import Best, better, student
from cppo.runs.plan import make_plan
from cppo.types import UsageError

OPTIONS = dict(algo="ppo_lag", env="ProbeBox", seeds=2, steps=2400, cost_limit=6.5, show=False, tensorboard=False)
EVALUATE = dict(eval_every=800, eval_episodes=8)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    return cppo.train(**OPTIONS, **EVALUATE, loggers=["csv"], out=tmp_path_factory.mktemp("evaluated") / "run")


def arrays(run, name=None):
    path = run.folder / "checkpoints" / name if name else checkpoint.latest(run.folder / "checkpoints")
    found = checkpoint.load(path)[0]
    return {name: array for name, array in found.items() if not name.startswith("best.")}


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours)


def test_training_is_the_same_to_the_bit(evaluated, tmp_path):
    plain = cppo.train(**OPTIONS, out=tmp_path / "plain")
    assert_same(arrays(evaluated), arrays(plain))
    columns = [name for name in plain.metrics().columns if name != "seconds"]
    assert evaluated.metrics()[columns].equals(plain.metrics()[columns])


def test_evaluations_stand_in_the_rows_where_they_are_due(evaluated):
    frame = evaluated.metrics().dropna(subset="eval_return")
    assert frame["steps"].tolist() == [800, 800, 1600, 1600, 2400, 2400]
    assert (frame["eval_bound"] > frame["eval_cost"]).all()
    assert set(frame) >= {"eval_return_mode", "eval_cost_mode"}
    assert "eval_bound" in (evaluated.folder / "metrics.csv").read_text().splitlines()[0]


def test_a_resumed_run_has_the_same_evaluations_and_the_same_best(evaluated, tmp_path):
    for step in cppo.training(**OPTIONS, **EVALUATE, out=tmp_path / "run"):
        if step.steps == 1200:
            break
    resumed = cppo.resume(tmp_path / "run", show=False, tensorboard=False)
    columns = [name for name in evaluated.metrics().columns if name != "seconds"]
    assert resumed.metrics()[columns].equals(evaluated.metrics()[columns])
    assert resumed.summary["best"] == evaluated.summary["best"]
    assert_same(arrays(resumed, checkpoint.BEST), arrays(evaluated, checkpoint.BEST))


def test_the_best_feasible_policy_can_be_had(evaluated):
    best = cppo.load(evaluated.folder, checkpoint="best")
    records = evaluated.summary["best"]
    frame = evaluated.metrics().dropna(subset="eval_return")
    for record in records:
        mine = frame[frame["seed"] == record["seed"]]
        within = mine[mine["eval_bound"] <= 6.5]
        assert record["feasible"] == bool(len(within))
        if record["feasible"]:
            assert record["return"] == within["eval_return"].max()
    assert best.policy().act([1.0]).shape == (1,)
    assert best.best_seed == max((r for r in records if r["feasible"]), key=lambda r: r["return"])["seed"]


def test_best_is_chosen_seed_by_seed_and_by_the_bound():
    plan = make_plan("ppo", "ProbeBox", seeds=2, cost_limit=3.0)

    def rows(*found):
        return [{"eval_return": earned, "eval_cost": bound - 0.1, "eval_bound": bound} for earned, bound in found]

    best = better(None, plan, 1, np.array([1.0, 1.0]), rows((5.0, 3.05), (1.0, 2.0)))
    assert isinstance(best, Best) and best.feasible
    best = better(best, plan, 2, np.array([2.0, 2.0]), rows((9.0, 3.2), (2.0, 2.9)))
    best = better(best, plan, 3, np.array([3.0, 3.0]), rows((0.5, 3.0), (9.0, 3.01)))
    assert best.agents.tolist() == [3.0, 2.0]
    assert [(r["iteration"], r["feasible"]) for r in best.records] == [(3, True), (2, True)]


def test_the_bound_is_students():
    assert student(np.array([1.0, 2.0, 3.0, 4.0]), 0.95) == pytest.approx(2.5 + 2.353363 * np.sqrt(5 / 3) / 2)


def test_a_bound_needs_two_episodes(tmp_path):
    with pytest.raises(UsageError, match="eval_episodes"):
        cppo.train(**OPTIONS, eval_every=10, eval_episodes=1, out=tmp_path / "run")
