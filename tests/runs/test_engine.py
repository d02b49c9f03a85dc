"""Training: probes are solved, a stopped run goes on exactly, bad news is told and loses nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds

import cppo
from cppo.envs.probes import ProbeBox
from cppo.runs import checkpoint
from cppo.runs.group import Group
from cppo.runs.learner import learner_for
from cppo.runs.member import start_from
from cppo.runs.plan import make_plan
from cppo.runs.saving import Saver
from cppo.types import TrainingError, UsageError

NOISE = "sample_algorithms:NOISE"
TIMING = {"seconds", "check"}  # the check of a line covers its time


def rows(folder):
    """metrics.jsonl without its timing fields."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in TIMING} for line in lines]


def run(folder, **options):
    defaults = dict(algo="cppo", env="ProbeBox", steps=2000, seeds=2, out=folder, show=False, tensorboard=False)
    return cppo.train(**(defaults | options))


OPTIMA = {
    "ProbeBox": (3.0, {"cost": 3.0}),
    "ProbeDiscrete": (5.625, {"cost": 3.0}),
    "ProbeTwo": (8.0, {"cost1": 2.0, "cost2": 6.0}),
    "ProbeState": (2.5, {"cost": 2.5}),
}


# The default tests hold every method to ProbeBox (tests/algos), and CPPO to two constraints here.
@pytest.mark.optimised
@pytest.mark.parametrize("env", [pytest.param(e, marks=[] if e == "ProbeTwo" else pytest.mark.slow) for e in OPTIMA])
def test_cppo_solves_the_probes(env, tmp_path):
    summary = run(tmp_path / "run", env=env, steps=30_000).summary
    best, limits = OPTIMA[env]
    assert summary["feasible"] == 1.0
    costs = summary["final_cost"] if isinstance(summary["final_cost"], dict) else {"cost": summary["final_cost"]}
    for name, limit in limits.items():
        assert 0.7 * limit < costs[name] <= limit
    assert 0.75 * best < summary["final_return"] <= 1.05 * best


def test_a_run_s_folder_describes_itself(tmp_path):
    done = run(tmp_path / "run", tensorboard=True)
    names = {path.name for path in done.folder.iterdir()}
    assert {"config.json", "metrics.jsonl", "summary.json", "versions.json", "checkpoints", "tensorboard"} <= names
    frame = done.metrics()
    assert len(frame) == 5 * 2
    assert {"return", "cost", "kl", "theta", "theta_reward", "theta_feasible", "case", "mode", "status"} <= set(frame)
    assert {"tracking_error", "predicted_cost_change", "realised_cost_change", "bound_share"} <= set(frame)
    for record in [done.summary, *done.summary["seeds"]]:
        wanted = {"final_return", "final_cost", "cost_limit", "feasible", "violation_rate", "steps", "wall_seconds"}
        assert wanted <= set(record)
    assert done.summary["time"]["steps_per_second"] > 0


@pytest.mark.parametrize("algo", ["ppo_lag", pytest.param("cppo", marks=pytest.mark.slow)])
def test_a_seed_s_result_does_not_depend_on_its_company(tmp_path, algo):
    together = run(tmp_path / "both", algo=algo, seeds=2, seed=5, steps=800)
    alone = run(tmp_path / "one", algo=algo, seeds=1, seed=6, steps=800)
    ours = [row["return"] for row in rows(together.folder) if row["seed"] == 6]
    np.testing.assert_allclose(ours, [row["return"] for row in rows(alone.folder)], rtol=1e-4)


def test_resume_equals_never_having_stopped(tmp_path):
    whole = run(tmp_path / "whole", steps=2400)
    run(tmp_path / "half", steps=1200)
    resumed = cppo.resume(tmp_path / "half", steps=2400, show=False, tensorboard=False)
    assert rows(resumed.folder) == rows(whole.folder)
    for ours, theirs in zip(*(sorted((r.folder / "checkpoints").glob("*006*")) for r in (whole, resumed)), strict=True):
        ours, theirs = checkpoint.load(ours)[0], checkpoint.load(theirs)[0]
        assert all(np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours)


SHORT = {"replay_size": 1000, "value_steps": 5, "states": 32, "actions": 4}  # the replay wraps several times


@pytest.mark.parametrize(
    ("algo", "settings", "steps"),
    [("ppo_lag", {}, 8000), pytest.param("cppo", {}, 8000, marks=pytest.mark.slow), ("cvpo", SHORT, 4000)],
)
def test_sigkill_at_a_random_moment_loses_nothing(tmp_path, algo, settings, steps):
    whole = run(tmp_path / "whole", algo=algo, steps=steps, settings=settings)
    command = [sys.executable, "-m", "cppo", "train", "--algo", algo, "--env", "ProbeBox", "--seeds", "2"]
    command += ["--steps", str(steps), "--out", str(tmp_path / "killed"), "--checkpoint-seconds", "0"]
    command += ["--no-tensorboard", *(f"--set={name}={value}" for name, value in settings.items())]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics = tmp_path / "killed" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size > 4000):
        time.sleep(0.005)
    time.sleep(random.random() * 0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    resumed = cppo.resume(tmp_path / "killed", show=False, tensorboard=False)
    assert rows(resumed.folder) == rows(whole.folder)
    assert all(map(np.array_equal, _state(resumed.folder), _state(whole.folder)))


def _state(folder):
    """The last saved state, replay included, as a list of arrays."""
    group = Group([cppo.load(folder).plan])
    fresh = group.split(group.start())[0]
    state, _ = Saver(folder / "checkpoints").load(fresh)
    return [np.nan_to_num(np.asarray(leaf), nan=-1.5) for leaf in jax.tree.leaves(state)]


def test_interrupt_saves_and_says_how_to_resume(tmp_path):
    command = [sys.executable, "-m", "cppo", "train", "--algo", "ppo_lag", "--env", "ProbeBox", "--seeds", "1"]
    command += ["--steps", "400000", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 130
    assert f"cppo train --resume {tmp_path / 'run'}" in output.replace("\n", "")
    saved = int(checkpoint.load(checkpoint.latest(tmp_path / "run" / "checkpoints"))[1]["iteration"])
    assert saved == rows(tmp_path / "run")[-1]["iteration"] > 0


def test_starting_from_a_trained_policy(tmp_path):
    first = run(tmp_path / "first", steps=12_000)
    second = run(tmp_path / "second", steps=400, init_from=tmp_path / "first")
    fresh = run(tmp_path / "fresh", steps=400)
    start, scratch = (r.metrics()["cost"].mean() for r in (second, fresh))
    assert start < 3.5 < scratch  # the untrained policy costs 5
    assert first.policy(0).act(np.ones(1)).shape == (1,)


def test_a_critic_that_does_not_fit_is_not_taken_in_part(tmp_path):
    first = run(tmp_path / "first", algo="ppo_lag", steps=400)
    second = make_plan("ppo_lag", "ProbeBox", settings={"critic_clock": True}, init_from=str(tmp_path / "first"))
    group = Group([second])
    state = group.split(group.start())[0]
    taken = start_from(state, tmp_path / "first")
    trained = checkpoint.load(checkpoint.latest(first.folder / "checkpoints"))[0]
    now, before = checkpoint.named_arrays(taken), checkpoint.named_arrays(state)
    for name, array in now.items():
        if name.startswith("agent.policy"):
            np.testing.assert_array_equal(array[0], trained[name][0])
        elif name.startswith(("agent.value", "agent.cost_value")):
            np.testing.assert_array_equal(array, before[name])


def test_a_policy_from_another_environment_is_refused(tmp_path):
    run(tmp_path / "first", algo=NOISE, steps=400)
    with pytest.raises(UsageError, match="does not fit"):
        run(tmp_path / "second", algo=NOISE, env="ProbeTwo", steps=400, init_from=tmp_path / "first")


def test_policies_act_on_one_observation_or_many(tmp_path):
    policy = run(tmp_path / "run", algo=NOISE, steps=400).policy(seed=1)
    assert policy.act(np.ones((7, 1))).shape == (7, 1)
    assert 0.0 <= float(policy.act(np.ones(1))[0]) <= 1.0
    first, second = (policy.act(np.ones(1), deterministic=False, seed=4) for _ in range(2))
    assert first == second
    with pytest.raises(UsageError, match="obs has shape"):
        policy.act(np.ones(3))
    with pytest.raises(UsageError, match="seed 9"):
        cppo.load(tmp_path / "run").policy(seed=9)


class Broken(ProbeBox):
    """Costs turn to NaN in the fourth batch."""

    def reset(self, key):
        return {"t": jnp.zeros(())}, jnp.ones(1)

    def step(self, state, action, key):
        _, seen = super().step({"parity": state["t"]}, action, key)
        cost = jnp.where(jnp.clip(action[0], 0, 1) > 0.999, jnp.nan, seen.cost)
        return {"t": state["t"] + 1}, seen._replace(cost=cost)


def test_nan_costs_stop_the_run_and_keep_what_was_saved(tmp_path, monkeypatch):
    worlds.offer(monkeypatch, "Broken", Broken())
    options = {"algo": "ppo", "checkpoint_seconds": 0, "settings": {"batch_size": 100, "num_envs": 10}}
    with pytest.raises(TrainingError, match="NaN or infinite rewards, costs or observations"):
        run(tmp_path / "run", env="Broken", **options)
    checkpoint.load(checkpoint.latest(tmp_path / "run" / "checkpoints"))
    assert all(row["nonfinite"] == 0 for row in rows(tmp_path / "run"))


class Blind(Broken):
    """Its observation becomes NaN, its rewards and costs do not."""

    def step(self, state, action, key):
        _, seen = ProbeBox.step(self, {"parity": state["t"]}, action, key)
        obs = jnp.where(state["t"] > 3, jnp.nan, seen.obs)
        return {"t": state["t"] + 1}, seen._replace(obs=obs)


def test_nan_observations_stop_the_run(tmp_path, monkeypatch):
    worlds.offer(monkeypatch, "Blind", Blind())
    with pytest.raises(TrainingError, match=r"observations at step 41 of seed 0 \(iteration 1\)"):
        run(tmp_path / "run", algo=NOISE, env="Blind", settings={"batch_size": 100, "num_envs": 10})


def test_short_rollouts_wait_for_one_longest_episode(tmp_path):
    """Ten steps to a batch, fifty to an episode: what ends before is the end of an episode under a made-up age."""
    sizes = {"batch_size": 800, "num_envs": 80}
    done = run(tmp_path / "run", algo=NOISE, env="PointCircle", seeds=1, steps=5600, settings=sizes)
    modes = [row["mode"] for row in rows(done.folder)]
    assert modes[:4] == ["waiting"] * 4 and modes[5:] == ["normal"] * 2
    assert rows(done.folder)[5]["cost"] is not None
    assert all(0 < row["episodes"] <= 16 for row in rows(done.folder)[5:])


def test_restarted_worlds_have_other_episodes():
    plan = make_plan("ppo", "PointCircle", settings={"num_envs": 4, "batch_size": 200})
    learner = learner_for([plan])
    used = {tuple(key) for key in np.asarray(learner.start()[1])}
    first = jax.random.PRNGKey(learner.seeds[0])
    used |= {tuple(np.asarray(key)) for key in jax.random.split(first, 3)}
    for restart in range(1, 5):
        assert not used & {tuple(key) for key in np.asarray(learner.start(restart)[1])}


def test_training_waits_for_the_first_finished_episode(tmp_path):
    sizes = {"batch_size": 20, "num_envs": 1, "hidden": (8,), "value_epochs": 1, "value_minibatches": 1}
    done = run(tmp_path / "run", algo="ppo", env="PointCircle", seeds=1, steps=80, settings=sizes)
    assert [row["mode"] for row in rows(done.folder)] == ["waiting", "waiting", "normal", "normal"]
    assert [row["cost"] is None for row in rows(done.folder)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algo": "cpppo"}, "Did you mean 'cppo'"),
        ({"env": "ProbeBoks"}, "Did you mean 'ProbeBox'"),
        ({"cost_limit": -1.0}, "at least 0"),
        ({"cost_limit": (1.0, 2.0)}, "2 cost limits given"),
        ({"steps": 0}, "steps is 0"),
        ({"seeds": 0}, "seeds is 0"),
        ({"settings": {"batch_size": 7}}, "not a multiple"),
    ],
)
def test_usage_errors(tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        run(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_not_overwritten_by_accident(tmp_path):
    run(tmp_path / "run", algo=NOISE, steps=400)
    with pytest.raises(UsageError, match="--resume"):
        run(tmp_path / "run", algo=NOISE, steps=400)
    run(tmp_path / "run", algo=NOISE, steps=400, overwrite=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match="not a run"):
        run(tmp_path / "other", overwrite=True)
    assert (tmp_path / "other" / "thesis.tex").read_text() == "precious"


def test_evaluation_counts_whole_episodes(tmp_path):
    result = cppo.evaluate(run(tmp_path / "run", algo=NOISE, steps=400), episodes=30)
    kinds = {row["actions"]: row for row in result["policies"]}
    assert set(kinds) == {"deterministic", "sampled"}
    assert kinds["sampled"]["episodes"] == 30
    assert kinds["sampled"]["length"] == 10
    assert kinds["deterministic"]["return"]["half_width"] == pytest.approx(0.0, abs=1e-5)
    assert os.path.isdir(tmp_path / "run")
