"""Bad numbers stop the seed that had them, and no other notices."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import worlds

import cppo
from cppo.envs.batched import JaxEnv
from cppo.envs.probes import ProbeBox
from cppo.reports import curves, diagnostics, ranking, records, report
from cppo.runs import checkpoint
from cppo.runs.learner import learner_for
from cppo.runs.plan import make_plan
from cppo.types import TrainingError

WORLDS, STEPS, ITERATIONS = 10, 10, 5
BATCH = WORLDS * STEPS
SETTINGS = {"batch_size": BATCH, "num_envs": WORLDS, "hidden": (8,), "value_epochs": 2, "epochs": 2, "min_episodes": 1}


class Odd(ProbeBox):
    """A probe where reward or cost are others at the one step whose draw is ``fate``."""

    def __init__(self, fate=2.0, **instead):
        self.fate, self.instead = fate, instead

    def step(self, state, action, key):
        state, seen = super().step(state, action, key)
        draw = jax.random.uniform(jax.random.fold_in(key, 7))
        changed = {
            name: jnp.where(draw == self.fate, value, getattr(seen, name)) for name, value in self.instead.items()
        }
        return state, seen._replace(**changed) if self.instead else seen._replace(reward=draw)


def fate(seed, seeds, iteration, step, world):
    """The draw of a world of a seed at a step of an iteration (from 1, from 0, from 0)."""
    keys = learner_for([make_plan("ppo_lag", "ProbeBox", seeds=seeds, settings=SETTINGS)]).start()[1]
    env = JaxEnv(Odd(), seeds * WORLDS)
    advance = jax.jit(env.advance)
    state, _ = env.init(keys)
    for _ in range((iteration - 1) * STEPS + step + 1):
        state, seen = advance(state, jnp.zeros((seeds * WORLDS, 1)))
    return float(seen.reward[seed * WORLDS + world])


def train(folder, monkeypatch, world, seeds=3, iterations=ITERATIONS, **options):
    worlds.offer(monkeypatch, "Odd", world)
    options = {"checkpoint_seconds": 0.0, "tensorboard": False, "show": False} | options
    return cppo.train("ppo_lag", "Odd", steps=BATCH * iterations, seeds=seeds, out=folder, settings=SETTINGS, **options)


def rows(run):
    return run.metrics().drop(columns="seconds")


def arrays(run, lane):
    found, _ = checkpoint.load(run.parameters_file())
    return {name: array[lane] for name, array in found.items() if name.startswith(("agent.", "worlds.", "key"))}


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Seed 1 of three has a NaN in iteration 4; beside it the same run without that."""
    folder = tmp_path_factory.mktemp("odd")
    moment = fate(seed=1, seeds=3, iteration=4, step=6, world=3)
    with pytest.MonkeyPatch.context() as patch:
        calm = train(folder / "calm", patch, Odd(reward=jnp.nan))
        yield train(folder / "odd", patch, Odd(moment, reward=jnp.nan)), calm


def test_a_nan_stops_its_seed_and_leaves_the_others_as_they_are(odd):
    run, calm = odd
    ours, theirs = rows(run), rows(calm)
    assert ours.loc[ours["seed"] == 1, "iteration"].tolist() == [1, 2, 3]
    sound = (theirs["seed"] != 1) | (theirs["iteration"] <= 3)
    pd.testing.assert_frame_equal(ours, theirs.loc[sound].reset_index(drop=True), check_exact=True)
    for lane in (0, 2):
        mine, other = arrays(run, lane), arrays(calm, lane)
        assert all(np.array_equal(mine[name], other[name], equal_nan=True) for name in other)
    assert all(np.isfinite(array).all() for name, array in arrays(run, 1).items() if name.startswith("agent.policy"))


def test_the_summary_names_the_seed_and_counts_it_as_infeasible(odd):
    run, calm = odd
    failed = run.summary["seeds"][1]
    assert failed["seed"] == 1 and failed["steps"] == 3 * BATCH and failed["feasible"] is False
    assert "Odd returned NaN or infinite" in failed["error"]
    assert (
        "at step 364 of seed 1 (iteration 4)" in failed["error"]
    )  # three batches, six steps of ten worlds, the fourth
    others = [row["final_return"] for row in calm.summary["seeds"] if row["seed"] != 1]
    assert run.summary["final_return"] == pytest.approx(np.mean(others))
    assert run.summary["feasible"] == sum(row["feasible"] for row in run.summary["seeds"]) / 3
    assert run.failed_seeds == {1: failed["error"]} and run.sound_seeds == [0, 2] and run.best_seed != 1


def test_a_failed_seed_stays_so_when_the_run_goes_on(odd, tmp_path):
    run, _ = odd
    before = arrays(run, 1)
    longer = cppo.resume(run.folder, steps=BATCH * (ITERATIONS + 1), show=False, tensorboard=False)
    frame = longer.metrics()
    assert frame.groupby("seed")["iteration"].max().tolist() == [ITERATIONS + 1, 3, ITERATIONS + 1]
    assert [row["seed"] for row in longer.summary["seeds"] if "error" in row] == [1]
    after = arrays(longer, 1)
    assert all(np.array_equal(after[name], before[name]) for name in before if name.startswith("agent."))


def test_whatever_reads_runs_takes_seeds_that_ended_early(odd, tmp_path, capsys):
    run, _calm = odd
    assert {row["seed"] for row in cppo.evaluate(run, episodes=4, num_envs=4)["policies"]} == {0, 2}
    curves.learning_curves([("odd", run.metrics())], run.plan.cost_limits, tmp_path / "curves.png")
    diagnostics.diagnostics(run.metrics(), run.plan.cost_limits, tmp_path / "diagnostics.png")
    record = records.load(run.folder)
    assert [row["seed"] for row in record["groups"][0]["seeds"]] == [0, 2]
    assert [(row["seed"], row["error"][:12]) for row in record["failed"]] == [(1, "Odd returned")]
    assert report.write(run.folder, tmp_path / "page", episodes=0).is_file()
    standing = ranking.standing("odd", run.summary, run.plan.cost_limits)
    assert (standing.seeds, standing.reward.mean is not None) == (3, True)


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ({"reward": 1e30}, r"returned reward 1e\+30 at step 15 of seed 0 \(iteration 1\); sizes beyond 1e\+09"),
        ({"cost": -2e9}, r"returned cost -2e\+09 at step 15"),
    ],
)
def test_numbers_too_large_are_refused(instead, words, tmp_path, monkeypatch):
    moment = fate(seed=0, seeds=1, iteration=1, step=1, world=4)
    with pytest.raises(TrainingError, match=words):
        train(tmp_path / "run", monkeypatch, Odd(moment, **instead), seeds=1, iterations=2)


def test_negative_costs_are_warned_of_once(tmp_path, monkeypatch, caplog):
    moment = fate(seed=0, seeds=1, iteration=1, step=1, world=4)
    world = Odd(moment, cost=-0.5)
    train(tmp_path / "run", monkeypatch, world, seeds=1, iterations=2)
    told = [record.getMessage() for record in caplog.records if "cost of" in record.getMessage()]
    assert len(told) == 1 and "Odd returned a cost of -0.5 at step 15 of seed 0" in told[0]
