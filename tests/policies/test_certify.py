"""Bounds cover as often as they say, for costs unlike anything normal."""

import json

import numpy as np
import pytest
from scipy import stats

import cppo
from cppo.commands.cli import main
from cppo.policies import certify
from cppo.policies.evaluate import EpisodeTotals
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
    quick = {"epochs": 2, "value_epochs": 2, "batch_size": 100, "num_envs": 10}
    run = cppo.train(
        "ppo_lag", "ProbeBox", steps=400, out=tmp_path / "run", settings=quick, show=False, tensorboard=False
    )
    found = certify.certify(run, episodes=60, confidence=0.9)
    row = found["constraints"]["cost"]
    assert found["episodes"] == 60 and row["mean"] < row["expected_cost_at_most"]["betting"] <= 10.0
    assert row["certified"] == (row["expected_cost_at_most"]["betting"] <= row["limit"])
    assert found["certified"] == row["certified"] and found["stream"] == certify.own_stream(run.policy())
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
    del config["sha256"]
    config["spec"]["time_limit"] = False
    (run.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="no time limit"):
        certify.certify(cppo.load(run.folder), episodes=4, num_envs=2)


@pytest.mark.parametrize("costs", [[0.0], [EPISODE], [0.0, EPISODE], [EPISODE, 10.0, 0.0]])
def test_each_bet_rests_on_earlier_episodes_alone(costs):
    """Three capitals Π (1 + λ_i (m − x_i)), whose mean has been 1/δ at best at the bound m; λ_i knows the variance of
    the episodes before i, which begin as one half and ¼."""
    target, capitals, best = np.log(1 / 0.95), np.ones(3), 0.0
    m = certify.betting(np.array(costs), EPISODE, 0.05) / EPISODE
    for i, x in enumerate(np.array(costs) / EPISODE):
        seen = np.array(costs[:i]) / EPISODE
        means = [(0.5 + seen[: k + 1].sum()) / (k + 2) for k in range(i)]
        variance = (0.25 + np.sum((seen - means) ** 2)) / (i + 1)
        bets = [min(np.sqrt(2 * target / (number * variance)), 0.9) for number in (100, 1000, 10_000)]
        capitals *= 1 + np.array(bets) * (m - x)
        best = max(best, capitals.mean())
    assert m == 1.0 or np.log(best) == pytest.approx(target, rel=1e-6)
    assert m < 1.0 or np.log(best) <= target


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_whoever_looks_again_and_again_is_misled_no_more_often(name):
    """The bound after more episodes is never above an earlier one: the last is the least of all looks, and covers."""
    draw = DISTRIBUTIONS[name]
    truth = draw(np.random.default_rng(1), 2_000_000).mean()
    samples = draw(np.random.default_rng(2), (500, 300)).astype(float)
    misses = sum(certify.betting(sample, EPISODE, 0.9) < truth for sample in samples)
    assert misses <= stats.binom.isf(1e-6, len(samples), 0.1)
    looks = [certify.betting(samples[0][:n], EPISODE, 0.9) for n in range(10, 301, 10)]
    assert np.all(np.diff(looks) <= 1e-9)


def test_a_policy_has_a_stream_of_its_own_and_shares_confidence_with_its_rivals(tmp_path):
    quick = {"epochs": 1, "value_epochs": 1}
    run = cppo.train(
        "ppo_lag", "ProbeTwo", steps=400, seeds=2, out=tmp_path / "run", settings=quick, show=False, tensorboard=False
    )
    streams = [certify.own_stream(run.policy(seed)) for seed in (0, 1)]
    assert streams[0] != streams[1] and streams[0] == certify.own_stream(cppo.load(run.folder).policy(0))
    few, more = (certify.certify(run, n, 0.9, trained_seed=0) for n in (60, 130))
    assert few["stream"] == more["stream"] == streams[0]
    assert few["confidence_of_each_constraint"] == pytest.approx(0.95)  # two constraints, one statement
    one, five = (certify.certify(run, 60, 0.9, trained_seed=0, among=n) for n in (1, 5))
    assert five["confidence_of_each_constraint"] == pytest.approx(0.99)
    for name, row in one["constraints"].items():
        bounds = [found["constraints"][name]["expected_cost_at_most"]["betting"] for found in (few, more, five)]
        assert row["expected_cost_at_most"]["betting"] == bounds[0] >= bounds[1] and bounds[2] > bounds[0]
    with pytest.raises(UsageError, match="among is 0"):
        certify.certify(run, among=0)
