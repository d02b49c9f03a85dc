"""What a run hands to an update, seen by an algorithm of its own."""

import pytest
import sample_algorithms

import cppo
from cppo import envs

NOISE = f"{sample_algorithms.__name__}:NOISE"
SMALL = {"batch_size": 40, "num_envs": 4}


def train(env, folder, **options):
    return cppo.train(NOISE, env, out=folder, cost_limit=1.0, show=False, tensorboard=False, **options)


@pytest.mark.parametrize("env", ["ProbeBox", "sample_envs:LongLineSample-v0"])
def test_every_step_of_a_batch_draws_its_own_noise(env, tmp_path):
    env = envs.from_gymnasium(env, workers=1) if ":" in env else env
    run = train(env, tmp_path / "run", steps=80, settings=SMALL)
    assert run.metrics()["repeated"].max() == 0.0


def test_worlds_start_at_all_ages_of_an_episode(tmp_path):
    """Four batches of five steps: 20 worlds end their episodes of ten steps evenly (whole ones count)."""
    run = train("ProbeBox", tmp_path / "run", steps=400, settings={"batch_size": 100, "num_envs": 20})
    assert run.metrics()["episodes"].tolist() == [0, 2, 10, 10]


def test_a_resumed_run_knows_the_episodes_of_before(tmp_path):
    """Worlds that cannot be saved start afresh; their first batch ends no episode, but J_c is known."""
    env = envs.from_gymnasium("sample_envs:LongLineSample-v0", workers=1)
    settings = {"batch_size": 20, "num_envs": 4, "min_episodes": 4}
    run = train(env, tmp_path / "run", steps=60, settings=settings)
    before = run.metrics()["known_cost"].iloc[-1]
    resumed = cppo.resume(run.folder, steps=80, show=False, tensorboard=False)
    last = resumed.metrics().iloc[-1]
    assert last["mode"] == "normal" and last["known_cost"] == pytest.approx(before)
