"""Bounds cover as often as they say, for costs unlike anything normal."""

import json

import numpy as np
import pytest
from scipy import stats

import cppo
from cppo import certify
from cppo.cli import main
from cppo.evaluate import EpisodeTotals
from cppo.types import UsageError

EPISODE = 50.0
DISTRIBUTIONS = {
    "rare and large": lambda rng, shape: EPISODE * (rng.random(shape) < 0.02),
    "mostly nothing": lambda rng, shape: np.where(rng.random(shape) < 0.8, 0.0, rng.integers(0, 51, shape)),
    "nearly constant": lambda rng, shape: 5.0 + rng.random(shape),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("bound", [certify.betting, certify.empirical_bernstein, certify.hoeffding])
def test_bounds_on_the_mean_cover(name, bound):
    draw = DISTRIBUTIONS[name]
    truth = draw(np.random.default_rng(1), 2_000_000).mean()
    samples = draw(np.random.default_rng(2), (2000, 100)).astype(float)
    misses = sum(bound(sample, EPISODE, 0.9) < truth for sample in samples)
    # At most a tenth may miss; a binomial with p = 0.1 exceeds this with probability 1e-6.
    assert misses <= stats.binom.isf(1e-6, len(samples), 0.1)


def test_the_bounds_order_and_shrink():
    rng = np.random.default_rng(0)
    costs = rng.binomial(50, 0.06, 1000).astype(float)
    found = [bound(costs, EPISODE, 0.95) for bound in (certify.betting, certify.empirical_bernstein, certify.hoeffding)]
    assert costs.mean() < certify.student(costs, 0.95) < found[0] < found[1] < EPISODE
    assert found[0] < found[2]
    assert certify.betting(costs[:100], EPISODE, 0.95) > found[0]
    assert certify.betting(np.full(20, EPISODE), EPISODE, 0.95) == EPISODE
    assert certify.betting(np.zeros(1000), EPISODE, 0.95) == pytest.approx(EPISODE * np.log(20) / 900, rel=0.1)


def test_at_low_confidence_the_bound_may_lie_below_the_mean():
    costs = np.linspace(0.0, EPISODE, 100)
    assert 0.0 < certify.betting(costs, EPISODE, 0.05) < costs.mean()


def test_student_is_exact_for_normal_values_and_clopper_pearson_covers():
    rng = np.random.default_rng(3)
    samples = rng.normal(3.0, 1.0, (4000, 8))
    misses = sum(certify.student(sample, 0.9) < 3.0 for sample in samples)
    assert stats.binom.cdf(misses, 4000, 0.1) > 1e-4 and stats.binom.sf(misses, 4000, 0.1) > 1e-4
    counts = rng.binomial(60, 0.07, 4000)
    missed = sum(certify.clopper_pearson(int(count), 60, 0.9) < 0.07 for count in counts)
    assert missed <= stats.binom.isf(1e-6, 4000, 0.1)
    bound = certify.clopper_pearson(4, 60, 0.9)
    assert stats.binom.cdf(4, 60, bound) == pytest.approx(0.1)


def test_certify_a_saved_policy(tmp_path, capsys, monkeypatch):
    quick = {"epochs": 1, "value_epochs": 1}
    run = cppo.train(
        "ppo_lag", "ProbeBox", steps=400, out=tmp_path / "run", settings=quick, show=False, tensorboard=False
    )
    found = certify.certify(run, episodes=60, confidence=0.9)
    row = found["constraints"]["cost"]
    assert found["episodes"] == 60 and row["mean"] < row["expected_cost_at_most"]["betting"] <= 10.0
    assert row["certified"] == (row["expected_cost_at_most"]["betting"] <= row["limit"])
    main(["certify", str(run.folder), "--episodes", "60", "--confidence", "0.9", "--json"])
    assert json.loads(capsys.readouterr().out) == found
    with pytest.raises(UsageError, match="largest-step-cost"):
        certify.certify(run, episodes=60, largest_step_cost=0.1)
    with pytest.raises(UsageError, match="confidence is 2"):
        certify.certify(run, confidence=2.0)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match=r"largest_step_cost is .* above 0"):
            certify.certify(run, largest_step_cost=wrong)
    costs = np.array([[3.0], [2.0]])
    monkeypatch.setattr(certify, "rollout", lambda *_: EpisodeTotals(costs[:, 0], costs, costs[:, 0], dropped=3))
    main(["certify", str(run.folder)])
    assert "lost with their process (3 here" in capsys.readouterr().out
    costs[0] = -3.0
    with pytest.raises(UsageError, match=r"an episode cost -3; .* at least 0"):
        certify.certify(run, episodes=2)


def test_certify_in_the_environment_that_was_trained_on(tmp_path, monkeypatch):
    """Its own cost function, through a recurrent policy's window, with a process that dies on the way."""
    monkeypatch.setenv("TROUBLE", str(tmp_path / "letters"))
    (tmp_path / "letters").write_text("")
    env = cppo.envs.from_gymnasium("sample_envs:Trouble", cost="sample_envs:one", episode_length=10, workers=1)
    quick = {"epochs": 1, "value_epochs": 1, "hidden": (4,), "batch_size": 40, "num_envs": 2}
    quick |= {"encoder": "gru", "memory": 2}
    run = cppo.train(
        "ppo_lag", env, steps=40, cost_limit=10, out=tmp_path / "run", settings=quick, show=False, tensorboard=False
    )
    closed = []
    monkeypatch.setattr(
        certify.envs, "close", lambda core, close=certify.envs.close: (closed.append(core), close(core))
    )
    (tmp_path / "letters").write_text("x")
    found = certify.certify(run, episodes=4, num_envs=2)
    assert found["constraints"]["cost"]["mean"] == 10.0 and closed
    assert (found["episodes"], found["dropped_episodes"]) == (4, 2)  # both worlds were in the process that died
    assert "lost with their process (2 here" in found["assumptions"][-1]
    config = json.loads((run.folder / "config.json").read_text())
    (run.folder / "config.json").write_text(json.dumps(config | {"spec": config["spec"] | {"time_limit": False}}))
    with pytest.raises(UsageError, match="no time limit"):
        certify.certify(cppo.load(run.folder), episodes=4, num_envs=2)
