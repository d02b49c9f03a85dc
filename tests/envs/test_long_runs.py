"""Long runs: a uniformly random policy scores as on the original, memory stays flat, many worlds fit."""

import json
import os
import resource
import subprocess
import sys

import jax
import numpy as np
import pytest
from worlds import build

import cppo

# Return and its deviation over ten episodes of the original under uniformly random actions.
RANDOM_POLICY = {"PointGoal1": (0.106, 0.681), "PointPush1": (0.026, 0.344)}
MANY = """
import resource, sys, jax, numpy as np
from cppo.envs import build
env = build(sys.argv[1], 10_000, "threads")
state, _ = env.init(np.asarray(jax.random.split(jax.random.PRNGKey(0), 10_000)))
state, _ = env.advance(state, np.zeros((10_000, env.spec.action.size)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RANDOM_POLICY))
def test_random_policy_scores_as_on_the_original(name):
    worlds, rng = 64, np.random.default_rng(0)
    env = build(name, worlds)
    state, _ = env.init(np.asarray(jax.random.split(jax.random.PRNGKey(0), worlds)))
    total = np.zeros(worlds)
    for _ in range(env.spec.episode_length):
        state, step = env.advance(state, rng.uniform(-1, 1, (worlds, 2)))
        total += step.reward
    assert step.truncated.all()
    mean, deviation = RANDOM_POLICY[name]
    assert abs(total.mean() - mean) < 4 * deviation * np.sqrt(1 / 10 + 1 / worlds)
    assert 0.4 * deviation < total.std() < 2.5 * deviation


@pytest.mark.slow
def test_memory_stays_flat():
    worlds, rng = 256, np.random.default_rng(0)
    env = build("PointGoal1", worlds)
    ages = rng.integers(0, 1000, worlds)
    state, _ = env.init(np.asarray(jax.random.split(jax.random.PRNGKey(0), worlds)), ages)
    peaks = []
    for t in range(4800):
        state, _ = env.advance(state, rng.uniform(-1, 1, (worlds, 2)))
        if t % 800 == 799:
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    assert peaks[-1] - peaks[0] < 20  # MiB, over a million steps after the first 200,000


ELSEWHERE = """
import jax, numpy as np
from cppo.envs.safety_gym import threads as safety_gym
from cppo.envs.ant_circle import threads as ant_circle
cpu, other = jax.devices()
jax.config.update("jax_default_device", other)  # what a GPU would be: the learner's device
seen = set()
def watch(tree, original=safety_gym.as_numpy):
    seen.update(device for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array) for device in leaf.devices())
    return original(tree)
safety_gym.as_numpy = ant_circle.as_numpy = watch
from cppo.envs import build
for name, size in (("PointGoal1", 2), ("AntCircle", 8)):
    env = build(name, 2, "threads")
    state, _ = env.init(jax.random.split(jax.random.PRNGKey(0), 2))
    state, step = env.advance(state, jax.numpy.zeros((2, size)))
    assert isinstance(step.obs, np.ndarray) and state.age.dtype == np.int32
assert jax.numpy.zeros(1).devices() == {other}
assert seen == {cpu}, seen
"""


@pytest.mark.slow
def test_tasks_on_threads_run_on_the_cpu_whatever_the_default_device():
    variables = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", ELSEWHERE], check=True, env=variables)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PointGoal1", "CarPush1", "AntCircle"])
def test_ten_thousand_worlds_fit_in_four_gibibytes(name):
    done = subprocess.run([sys.executable, "-c", MANY, name], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 4.0


@pytest.mark.slow
def test_training_on_threads_resumes_exactly(tmp_path):
    settings = {"batch_size": 200, "num_envs": 10, "value_epochs": 2, "epochs": 2, "hidden": (8, 8), "min_episodes": 1}
    how = {"show": False, "tensorboard": False}

    def rows(run):
        lines = (run.folder / "metrics.jsonl").read_text().splitlines()
        return [
            {key: value for key, value in json.loads(line).items() if key not in ("seconds", "check")} for line in lines
        ]

    whole = cppo.train("ppo", "PointPush1", steps=800, out=tmp_path / "whole", settings=settings, **how)
    cppo.train("ppo", "PointPush1", steps=400, out=tmp_path / "half", settings=settings, **how)
    assert rows(cppo.resume(tmp_path / "half", steps=800, **how)) == rows(whole)
