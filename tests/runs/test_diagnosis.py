"""The setting ``diagnose`` measures and changes nothing."""

import numpy as np
import pandas as pd
import pytest

import cppo
from cppo.commands.cli import main
from cppo.reports import response
from cppo.runs import checkpoint
from cppo.runs.checkpoint import checkpoints_of
from cppo.types import UsageError

SMALL = {"hidden": (8, 8), "value_epochs": 1, "value_minibatches": 2, "min_episodes": 1}
QUIET = {"show": False, "tensorboard": False}
SIZES = {"batch_size": 200, "num_envs": 20}
CASES = {
    "cppo": ("cppo", "ProbeBox", SIZES | {"epochs": 2}, 2),
    "cpo": ("cpo", "ProbeTwo", SIZES, 1),
    "on the host": ("trpo_lag", "PointGoal1", {"batch_size": 2000, "num_envs": 2}, 1),
}


def train(folder, case, every, iterations=4):
    algo, env, sizes, seeds = case
    settings = SMALL | sizes | {"diagnose": every}
    return cppo.train(
        algo, env, steps=iterations * sizes["batch_size"], seeds=seeds, out=folder, settings=settings, **QUIET
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Two seeds under two limits, in one compiled program."""
    return train(tmp_path_factory.mktemp("measured") / "run", ("ppo_lag", "ProbeTwo", SIZES, 2), 2)


def assert_same(plain, measured):
    """Training is the same; what was measured comes beside it, where it was due."""
    ours, theirs = plain.metrics(), measured.metrics()
    common = [column for column in ours.columns if column not in ("seconds", "check")]
    assert ours[common].equals(theirs[common])
    states = [checkpoint.load(checkpoint.latest(checkpoints_of(run.folder)))[0] for run in (plain, measured)]
    assert states[0].keys() == states[1].keys()
    assert all(np.array_equal(states[0][key], states[1][key], equal_nan=True) for key in states[0])

    new = sorted(set(theirs.columns) - set(ours.columns))
    names = plain.plan.spec.cost_names
    end = f".{names[0]}" if len(names) > 1 else ""
    assert {"response_reward", f"response_cost{end}", f"true_angle{end}", f"confirmed_step_cost{end}"} <= set(new)
    due = np.asarray(theirs["iteration"] % 2 == 0)
    assert np.isfinite(theirs.loc[due, f"promised_step_cost{end}"]).all() and theirs.loc[~due, new].isna().all(None)


def test_training_is_the_same_with_and_without(measured, tmp_path):
    assert_same(train(tmp_path / "plain", ("ppo_lag", "ProbeTwo", SIZES, 2), 0), measured)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_training_of_every_kind_is_the_same_with_and_without(tmp_path, name):
    assert_same(*(train(tmp_path / str(every), CASES[name], every) for every in (0, 2)))


def test_a_resumed_run_measures_what_it_would_have(measured, tmp_path):
    train(tmp_path / "parts", ("ppo_lag", "ProbeTwo", SIZES, 2), 2, iterations=2)
    parts = cppo.resume(tmp_path / "parts", steps=800, show=False, tensorboard=False)
    kept = [column for column in measured.metrics().columns if column not in ("seconds", "check")]
    assert measured.metrics()[kept].equals(parts.metrics()[kept])
    main(["plot", str(parts.folder)])  # few measurements: empty panels are no error
    assert (parts.folder / "curves-diagnostics.png").is_file()


def test_one_world_has_nobody_to_be_compared_with():
    with pytest.raises(UsageError, match="num_envs of at least 2"):
        cppo.train("ppo", "ProbeBox", settings={"diagnose": 1, "num_envs": 1, "batch_size": 40})


def test_angles_are_of_mean_responses():
    reward = np.tile([5.0, -3.0], 15)  # 1 on average
    frame = pd.DataFrame({"seed": 0, "response_reward": reward, "response_cost": 4.0, "response_both": 1.0})
    found = response.angles(frame)
    assert np.isnan(found[:2]).all() and found[9::2] == pytest.approx(60.0)


def test_what_came_is_the_next_cost_of_the_same_seed():
    frame = pd.DataFrame({"seed": [1, 0, 1, 0, 0], "iteration": [1, 1, 2, 2, 4], "cost": [5.0, 1.0, 8.0, 3.0, 9.0]})
    np.testing.assert_array_equal(response._realised(frame, "cost"), [3.0, 2.0, np.nan, np.nan, np.nan])
