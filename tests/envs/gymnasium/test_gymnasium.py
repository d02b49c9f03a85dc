"""Environments of others: spaces, costs, ends of episodes, processes that fail."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import sample_envs
from gymnasium import spaces

import cppo
import cppo.envs.gymnasium.export
from cppo.envs import from_gymnasium
from cppo.envs.gymnasium import env as gym_env
from cppo.envs.gymnasium import world
from cppo.runs import health
from cppo.types import LOST, Box, Discrete, MultiDiscrete, TrainingError, UsageError

SMALL = {"batch_size": 40, "num_envs": 4, "min_episodes": 1, "value_epochs": 1, "epochs": 1}


def train(env, folder, steps=120, algo="ppo_lag", limit=5.0, **options):
    settings = SMALL | options.pop("settings", {})
    return cppo.train(
        algo,
        env,
        steps=steps,
        out=folder,
        cost_limit=limit,
        settings=settings,
        show=False,
        tensorboard=False,
        **options,
    )


def test_steps_are_the_environment_s_own():
    ours = from_gymnasium("sample_envs:LineSample-v0", num_envs=5, workers=2)
    assert ours.spec.action == Box((-2.0,), (4.0,))
    assert (ours.spec.episode_length, ours.spec.cost_names, ours.spec.cost_limits) == (10, ("cost",), ())
    obs = ours.reset(seed=3)
    assert len(np.unique(obs[:, 0])) == 5  # every world has a seed of its own
    np.testing.assert_array_equal(obs, ours.reset(seed=3))
    actions = np.random.default_rng(0).uniform(-1, 1, (25, 5, 1)).astype(np.float32)
    x, t = obs[:, 0].astype(float), np.zeros(5)
    for action in actions:
        step = ours.step(action)
        x, t = x + action[:, 0], t + 1
        np.testing.assert_allclose(step.final_obs, np.stack([x, t], 1), atol=1e-5)
        np.testing.assert_allclose(step.reward, 1 - np.abs(x), atol=1e-5)
        np.testing.assert_allclose(step.cost[:, 0], np.abs(action[:, 0]), atol=1e-6)
        np.testing.assert_array_equal(step.terminated, np.abs(x) > 5)
        np.testing.assert_array_equal(step.truncated, (t == 10) & ~step.terminated)
        ended = step.terminated | step.truncated
        np.testing.assert_array_equal(step.obs[ended][:, 1], 0)  # a new episode
        np.testing.assert_array_equal(step.obs[~ended], step.final_obs[~ended])
        x[ended], t[ended] = step.obs[ended][:, 0], 0
    ours.close()


def test_staggered_first_episodes_are_cut_short():
    core = from_gymnasium("sample_envs:LineSample-v0", num_envs=2).core
    state, _ = core.init(np.arange(4, dtype=np.uint32).reshape(2, 2), np.asarray([0, 7]))
    ends = []
    for _ in range(20):
        state, step = core.advance(state, np.zeros((2, 1)))
        ends.append(step.truncated)
    assert [np.flatnonzero(world).tolist() for world in np.transpose(ends)] == [[9, 19], [2, 12]]


@pytest.mark.parametrize(
    ("make", "options", "names", "first"),
    [
        ("sample_envs:Line", {}, ("cost",), [1.0]),
        ("sample_envs:Line", {"cost_keys": ("left", "right")}, ("left", "right"), [0.0, 1.0]),
        ("sample_envs:Line", {"cost": "sample_envs:one"}, ("cost",), [1.0]),
        ("sample_envs:Line", {"cost": lambda o, a, n, i: (n[1] - o[1], 5)}, ("cost1", "cost2"), [1.0, 5.0]),
        ("sample_envs:VectorCost", {}, ("cost1", "cost2", "cost3"), [1.0, 2.0, 3.0]),
        ("sample_envs:SixTuple", {}, ("cost",), [7.0]),
        ("sample_envs:SixTuple", {"cost_keys": ("cost_sum",)}, ("cost_sum",), [1.0]),
    ],
)
def test_where_costs_come_from(make, options, names, first):
    env = from_gymnasium(make, **options)
    assert env.spec.cost_names == names
    env.reset(seed=0)
    np.testing.assert_allclose(env.step(np.ones((1, 1))).cost[0], first)


@pytest.mark.parametrize(
    ("cls", "obs", "action"),
    [
        ("Dict", (3,), Box((-2.0,), (4.0,))),
        ("Picture", (8, 8, 1), Box((-2.0,), (4.0,))),
        ("Choices", (2,), MultiDiscrete((2, 3))),
        ("FromFive", (2,), Discrete(2)),
    ],
)
def test_spaces(cls, obs, action):
    env = from_gymnasium(f"sample_envs:{cls}", num_envs=2)
    assert (env.spec.obs_shape, env.spec.action) == (obs, action)
    first = env.reset(seed=0)
    step = env.step(np.zeros((2, *action.shape)))
    assert step.obs.shape == (2, *obs)
    if cls == "Dict":
        x, parity = first[:, 2], step.obs[:, :2]  # keys in alphabetical order: parity, x
        np.testing.assert_array_equal(parity, [[0, 1], [0, 1]])
        np.testing.assert_allclose(step.obs[:, 2], x, atol=1e-6)
    if cls == "Picture":
        assert first.max() == 1.0
        assert (first.sum(axis=(1, 2, 3)) == 8).all()


def test_a_name_can_be_many_things(tmp_path):
    for make in ("LineSample-v0", sample_envs.Line, partial(sample_envs.limited, steps=4)):
        if make == "LineSample-v0":
            make = f"sample_envs:{make}"
        assert from_gymnasium(make).spec.obs_shape == (2,)
    assert from_gymnasium("CartPole-v1", cost="sample_envs:one").spec.episode_length == 500
    assert from_gymnasium(partial(sample_envs.limited, steps=4)).spec.episode_length == 4
    assert from_gymnasium("sample_envs:Line", episode_length=6).spec.episode_length == 6
    assert from_gymnasium("sample_envs:Line", episode_length=6).spec.time_limit
    assert not from_gymnasium("sample_envs:Line").spec.time_limit


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        ("sample_envs:NoCost", {}, "info has no cost .*speed.*--cost-keys"),
        ("sample_envs:Line", {"cost_keys": ("up",)}, "info has no up"),
        ("sample_envs:Nothing-v0", {}, "cannot be used"),
        ("no_such_module:Line", {}, "no_such_module"),
        ("sample_envs:Unbounded", {}, "actions without bounds"),
        ("sample_envs:Line", {"cost": "sample_envs:nothing"}, "nothing"),
        ("sample_envs:Line", {"cost": "sample_envs:one", "cost_keys": ("left",)}, "not both"),
        ("sample_envs:Line", {"python": "/no/such/python"}, "cannot be run"),
        (sample_envs.Line, {"python": sys.executable}, "as import paths"),
        ("sample_envs:Line", {"workers": 0}, "at least 1"),
        ("sample_envs:Line", {"num_envs": 0}, "at least 1"),
    ],
)
def test_usage_errors(make, options, words):
    with pytest.raises(UsageError, match=words):
        from_gymnasium(make, **options)


def test_a_limit_must_be_given(tmp_path):
    with pytest.raises(UsageError, match=r"no cost limit of its own.*--cost-limit 10"):
        train("sample_envs:LongLineSample-v0", tmp_path / "run", limit=None)


def test_training_evaluating_and_resuming(tmp_path, capsys):
    run = train("sample_envs:LongLineSample-v0", tmp_path / "run", steps=80)
    assert run.metrics()["episodes"].sum() == 80 / 10
    assert (run.metrics()["dropped_episodes"] == 0).all()
    result = cppo.evaluate(run, episodes=4)
    assert {row["length"] for row in result["policies"]} == {10.0}
    config = json.loads((run.folder / "config.json").read_text())
    assert config["gymnasium"]["make"] == "sample_envs:LongLineSample-v0"
    resumed = cppo.resume(run.folder, steps=120, tensorboard=False)
    assert "episodes start afresh" in capsys.readouterr().out
    assert resumed.metrics()["steps"].max() == 120


def test_opening_a_run_does_not_start_its_environment(tmp_path, monkeypatch):
    train("sample_envs:LongLineSample-v0", tmp_path / "run", steps=40)
    monkeypatch.setattr(gym_env.gym_pool, "Process", None)
    assert cppo.load(tmp_path / "run").policy(0).act(np.zeros(2)).shape == (1,)


def test_a_function_without_import_path_is_asked_for_again(tmp_path):
    env = from_gymnasium(lambda: sample_envs.limited(steps=10))
    train(env, tmp_path / "run", steps=40)
    with pytest.raises(UsageError, match="pass it again"):
        cppo.resume(tmp_path / "run", steps=80, show=False)
    assert cppo.resume(tmp_path / "run", steps=80, env=env, show=False).metrics()["steps"].max() == 80


def test_off_policy_methods_refuse_several_choices(tmp_path):
    with pytest.raises(UsageError, match=r"mpo has no MultiDiscrete.*cppo"):
        train("sample_envs:Choices", tmp_path / "run", algo="mpo")


@pytest.mark.slow
def test_several_choices_are_learned(tmp_path):
    env = from_gymnasium("sample_envs:Choices", episode_length=10)
    settings = {"batch_size": 400, "value_epochs": 10, "epochs": 20, "policy_rate": 3e-3, "kl": 0.05}
    run = train(env, tmp_path / "run", steps=400 * 25, limit=3.0, settings=settings)
    # All lengths 1 earn 5 at no cost; each length 2 adds 0.5 and costs 1: the limit allows 6.5.
    assert run.summary["final_cost"] <= 3.3
    assert run.summary["final_return"] > 5.5


@pytest.mark.parametrize(
    ("letter", "kind"), [("r", "exception"), ("x", "crash"), ("h", "hang"), ("g", "hang"), ("s", "shape")]
)
def test_a_failed_process_is_restarted_and_its_episodes_dropped(letter, kind, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TROUBLE", str(tmp_path / "letters"))
    (tmp_path / "letters").write_text(letter)
    patience = 2.0 if kind == "hang" else 60.0  # a busy machine keeps healthy processes waiting
    env = from_gymnasium(partial(sample_envs.limited, sample_envs.Trouble), num_envs=4, workers=2, timeout=patience)
    run = train(env, tmp_path / "run", steps=160)
    assert run.metrics()["dropped_episodes"].tolist() == [2, 0, 0, 0]
    assert run.metrics()[f"dropped_{kind}"].tolist()[:1] == [2]
    assert run.summary["dropped_episodes"] == dict.fromkeys(LOST, 0) | {kind: 2}
    assert run.metrics()["episodes"].iloc[0] == 2  # only the other process's worlds finished theirs
    assert run.metrics()["length"].iloc[-1] == 10
    assert "are restarted, their episodes dropped" in caplog.text


@pytest.mark.parametrize(("letter", "words"), [("r", "the motor is on fire"), ("x", "exit code 3"), ("h", "in time")])
def test_repeated_failures_end_the_run_with_the_environment_s_traceback(letter, words, tmp_path, monkeypatch):
    monkeypatch.setenv("TROUBLE", str(tmp_path / "letters"))
    (tmp_path / "letters").write_text(letter * 50)
    env = from_gymnasium(
        partial(sample_envs.limited, sample_envs.Trouble), num_envs=1, timeout=0.5 if letter == "h" else 60.0
    )
    env.reset(seed=0)
    processes = env.core.pool.processes  # type: ignore[union-attr]
    with pytest.raises(TrainingError, match="failed 3 times") as error:
        for _ in range(20):
            env.step(np.zeros((1, 1)))
    assert words in str(error.value)
    assert letter == "x" or "sample_envs.py" in str(error.value)  # where it was, also when it only hung
    assert all(process._child.poll() is not None for process in processes)


@pytest.mark.parametrize(
    ("what", "value", "words"),
    [
        ("obs", np.zeros(1, np.float32), r"shape \(1,\); its space declares \(2,\)"),
        ("obs", 0.5, r"shape \(\); its space declares \(2,\)"),
        ("obs", np.zeros(2, complex), "dtype complex128; its space declares float32"),
        ("reset", np.zeros((2, 1), np.float32), r"shape \(2, 1\)"),
        ("reward", np.zeros(2), r"the reward array\(\[0\., 0\.\]\); it must be a number"),
        ("reward", None, "the reward None; it must be a number"),
        ("cost", [1.0, 2.0], r"the cost is \[1\.0, 2\.0\]; it must be a number"),
        ("cost", "1.0", "the cost is '1.0'; it must be a number"),
        ("terminated", "False", "terminated"),
    ],
)
def test_what_does_not_fit_its_space_is_refused(what, value, words):
    env = sample_envs.wrong(what, value)
    worker = world.World(env, None, [], None)
    worker.costs = 1
    with pytest.raises(world.making.Mismatch, match=words):
        worker.reset(seed=0)
        for _ in range(2):
            worker.step(np.zeros(1))


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (spaces.Box(0, 255, (2, 2, 1), np.uint8), np.zeros((2, 2, 1), np.int64), np.zeros((2, 2, 1))),
        (spaces.Box(-1, 1, (2,), np.float32), [5, 0], [[5, 0]]),
        (spaces.Dict(a=spaces.Box(0, 1, (1,)), b=spaces.Discrete(2)), {"a": [0.0], "b": 1}, {"a": 0.0, "b": 1}),
        (spaces.Dict(a=spaces.Box(0, 1, (1,))), {"a": [0.0]}, {"b": [0.0]}),
        (spaces.Tuple([spaces.Discrete(2)]), (1,), (1, 1)),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), np.array([1, 3])),
    ],
)
def test_spaces_know_what_fits(space, good, bad):
    world.making.fits(space, good, "it")
    with pytest.raises(world.making.Mismatch, match="it"):
        world.making.fits(space, bad, "it")


def test_an_environment_that_loses_every_episode_ends_with_its_error(tmp_path, monkeypatch):
    monkeypatch.setenv("TROUBLE", str(tmp_path / "letters"))
    (tmp_path / "letters").write_text("rr")  # too few for a process to be given up
    env = from_gymnasium(partial(sample_envs.limited, sample_envs.Trouble), num_envs=4, workers=2)
    with pytest.raises(TrainingError, match=r"no episode of the run finished, 4 were lost(.|\n)*motor is on fire"):
        train(env, tmp_path / "run", steps=40)


class Gone:
    """How many of the worlds of a batch lost an episode, and how many finished one."""

    def __init__(self, most):
        self.losses = health.Losses(most)

    def says(self, *pairs):
        for lost, ended in pairs:
            self.losses.add([{"dropped_episodes": lost, "episodes": ended}])
        return self.losses.too_many()


def test_too_large_a_share_of_lost_episodes_stops_a_run():
    assert Gone(0.1).says(*[(2, 8)] * 19) is None  # a window is not full yet
    assert "40 of 200" in str(Gone(0.1).says(*[(2, 8)] * 20))
    assert Gone(0.2).says(*[(2, 8)] * 20) is None
    assert Gone(0.1).says(*[(150, 0)] * 2, *[(0, 30)] * 18) is None  # two accidents of many worlds at once
    assert Gone(0.1).says(*[(2, 8)] * 19, *[(0, 10)] * 20) is None  # what is long ago


PARENT = """
import sys, threading
import numpy as np
import sample_envs
from functools import partial
from cppo.envs import from_gymnasium

def go():
    env = from_gymnasium(partial(sample_envs.limited, sample_envs.Trouble), num_envs=2, workers=2)
    env.reset(seed=0)
    print(*(process._child.pid for process in env.core.pool.processes), flush=True)
    for _ in range(10):
        env.step(np.zeros((2, 1)))

if sys.argv[1] == "thread":
    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
else:
    go()
"""


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="asks Linux which processes there are")
@pytest.mark.parametrize(("letter", "place"), [("g", "main"), ("h", "thread")])
def test_nothing_outlives_a_killed_parent(letter, place, tmp_path):
    """Workers hang in Python or in compiled code when the parent is killed in the middle of a step."""
    (tmp_path / "letters").write_text(letter * 50)
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TROUBLE": str(tmp_path / "letters"), "TMPDIR": str(tmp_path / "tmp")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)  # another interpreter has its own modules
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-c", PARENT, place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as parent:
        workers = parent.stdout.readline().split()  # type: ignore[union-attr]
        while len((tmp_path / "letters").read_text()) > 48:  # both took theirs, and hang
            assert parent.poll() is None, "the parent did not come so far"
            time.sleep(0.05)
        assert len(workers) == 2 and all(alive(int(worker)) for worker in workers)
        parent.kill()
    deadline = time.monotonic() + 60.0
    while any(alive(int(worker)) for worker in workers):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.05)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not {name for name in set(os.listdir("/dev/shm")) - before if name.startswith(("cppo", "tmp"))}


def test_no_process_outlives_a_run(tmp_path):
    env = from_gymnasium("sample_envs:LineSample-v0", num_envs=3)
    env.reset(seed=0)
    children = [process._child for process in env.core.pool.processes]  # type: ignore[union-attr]
    assert all(child.poll() is None for child in children)
    env.close()
    assert all(child.poll() is not None for child in children)


@pytest.mark.slow
def test_pictures_train_a_cnn(tmp_path):
    env = from_gymnasium(partial(sample_envs.limited, sample_envs.Picture))
    run = train(env, tmp_path / "run", steps=80)
    assert run.policy(0).act(np.zeros((8, 8, 1))).shape == (1,)


def test_our_own_tasks_survive_the_round_trip(tmp_path):
    """A task of ours, wrapped as a Gymnasium environment and brought back, costs and earns what it did."""
    ours, back = cppo.envs.make("AntCircle"), from_gymnasium("cppo.envs.gymnasium.export:cppo/AntCircle-v0")
    assert (back.spec.obs_shape, back.spec.action) == (ours.spec.obs_shape, ours.spec.action)
    single = gymnasium.make("cppo/AntCircle-v0", disable_env_checker=True)
    first = back.reset(seed=0)
    seed = int(np.asarray(_keys(1))[0, -1] % 2**31)
    np.testing.assert_allclose(single.reset(seed=seed)[0], first[0], atol=1e-6)
    for _ in range(5):
        action = np.full(8, 0.5, np.float32)
        obs, reward, _, _, info = single.step(action)
        step = back.step(action[None])
        np.testing.assert_allclose(step.obs[0], obs, atol=1e-6)
        np.testing.assert_allclose((step.reward[0], step.cost[0, 0]), (reward, info["cost"]), atol=1e-6)


def _keys(number):
    import jax

    return jax.random.split(jax.random.PRNGKey(0), number)
