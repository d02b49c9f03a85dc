"""What a task says of its episodes (goals reached, fallen, an entry of ``info``), from a step to a run's summary."""

import jax
import numpy as np
import pandas as pd
import pytest

import cppo
from cppo.commands import cli
from cppo.envs import from_gymnasium
from cppo.envs.ant_circle.threads import AntCircleEnv
from cppo.envs.safety_gym.scenes import SCENES
from cppo.envs.safety_gym.threads import SafetyGymEnv
from cppo.reports import curves
from cppo.runs.collect import Rollout, measured
from cppo.runs.member import rows_of
from cppo.runs.metrics import summarise
from cppo.runs.plan import make_plan
from cppo.runs.saving import Saver

WORLDS = 4


def keys(number=WORLDS):
    return np.asarray(jax.random.split(jax.random.PRNGKey(0), number))


@pytest.fixture(scope="module")
def point_goal():
    return SafetyGymEnv(SCENES["PointGoal1"], WORLDS)


def at_the_goal(env, state, world):
    """The state with the goal of a world where its robot stands."""
    goal = np.array(state.task.goal)
    goal[world] = state.task.start[world, :2]
    return state._replace(task=state.task._replace(goal=goal))


def test_goals_are_counted_until_the_episode_ends(point_goal):
    state, _ = point_goal.init(keys())
    rest = np.zeros((WORLDS, 2), np.float32)
    for number in (1, 2):
        state, step = point_goal.advance(at_the_goal(point_goal, state, world=1), rest)
        assert step.measures.tolist() == [[0.0], [number], [0.0], [0.0]]
    state = state._replace(age=np.full(WORLDS, 999, np.int32))
    state, step = point_goal.advance(at_the_goal(point_goal, state, world=2), rest)
    assert step.truncated.all() and step.measures.ravel().tolist() == [0.0, 2.0, 1.0, 0.0]
    assert state.tally.tolist() == [0.0] * WORLDS  # of the new episodes


def test_an_episode_that_was_joined_midway_says_nothing(point_goal):
    state, _ = point_goal.init(keys(), np.asarray([0, 10, 20, 998]))
    state, step = point_goal.advance(at_the_goal(point_goal, state, world=1), np.zeros((WORLDS, 2), np.float32))
    assert np.isnan(step.measures.ravel()).tolist() == [False, True, True, True]
    state, step = point_goal.advance(state, np.zeros((WORLDS, 2), np.float32))
    assert state.tally[3] == 0.0, "a new episode is whole"


def test_a_checkpoint_of_before_goes_on_without_them(point_goal, tmp_path):
    state, _ = point_goal.init(keys())
    old = {"host_env": {name: value for name, value in state._asdict().items() if name != "tally"}}
    saver = Saver(tmp_path)
    saver.save(3, old, {})
    loaded, _ = saver.load({"host_env": state._asdict()})
    assert np.isnan(loaded["host_env"]["tally"]).all()
    assert np.array_equal(loaded["host_env"]["age"], state.age)


def test_circles_have_none_and_an_ant_says_that_it_fell():
    assert SCENES["PointCircle1"].spec.measures == () and cppo.envs.spec("PointPush1").measures == ("goals",)
    ant = AntCircleEnv(2)
    state, _ = ant.init(keys(2))
    high = np.array(state.qpos)
    high[1, 2] = 3.0  # m, the torso's height
    _, step = ant.advance(state._replace(qpos=high), np.zeros((2, 8), np.float32))
    assert step.measures.tolist() == [[0.0], [1.0]] and step.terminated.tolist() == [False, True]


def test_a_batch_gives_means_of_the_episodes_that_ended():
    """Two lanes of two worlds, three steps; lost and unknown episodes are left out."""
    ended = np.zeros((2, 3, 2), bool)
    ended[0, 1, 0] = ended[0, 2, 0] = ended[0, 2, 1] = True
    said = np.full((2, 3, 2, 1), 9.0)
    said[0, 1, 0], said[0, 2, 0], said[0, 2, 1] = 1.0, 4.0, np.nan
    rollout = Rollout(*[None] * 5, terminated=ended, truncated=ended & False, dropped=None, measures=said)
    assert measured(("goals",), rollout)["task.goals"].tolist()[0] == 2.5
    assert np.isnan(measured(("goals",), rollout)["task.goals"][1])
    lost = np.zeros((2, 3, 2), int)
    lost[0, 1, 0] = 1
    assert measured(("goals",), rollout._replace(dropped=lost))["task.goals"][0] == 4.0
    assert measured((), rollout._replace(measures=None)) == {}


def test_rows_summary_table_and_curves_have_them(tmp_path, capsys):
    from rich.console import Console

    from cppo.runs.outcome import summary_table

    plan = make_plan("ppo", "PointGoal1", seeds=1)
    rows = []
    for number, goals in enumerate([1.0, np.nan, 2.5], start=1):
        found = {"return": [0.0], "length": [9.0], "cost": [[3.0]], "task.goals": [goals], "waiting": [False]}
        rows += rows_of(plan, number, {name: np.asarray(x) for name, x in found.items()}, 1.0)
    assert [row["task.goals"] for row in rows] == [1.0, None, 2.5]
    frame = pd.DataFrame(rows)
    summary = summarise(frame, plan.cost_limits, 1.0, 90_000)
    assert summary["final_task"] == {"goals": 2.5} == summary["seeds"][0]["final_task"]
    Console(width=120).print(summary_table(summary, "PPO"))
    heading, line = capsys.readouterr().out.splitlines()[1:3]
    assert heading.split()[:5] == ["seed", "return", "cost/limit", "goals", "feasible"] and line.split()[3] == "2.50"
    labels = []
    draw = curves._draw_runs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "_draw_runs", lambda *given: (labels.append(given[3]), draw(*given)))
        curves.learning_curves([("PPO", frame)], plan.cost_limits, tmp_path / "curves.png")
    assert labels == ["episode return", "episode cost", "goals an episode"]


def test_entries_of_info_are_read_by_their_rule():
    """``Line`` moves by its action from near 0: its info says whether it is left or right of there."""
    rules = ("right", "left:sum", "cost:max", "nothing", "never:sum")
    env = from_gymnasium("sample_envs:LineSample-v0", num_envs=2, workers=1, measures=rules)
    assert env.spec.measures == ("right", "left", "cost", "nothing", "never")
    try:
        env.reset(seed=0)
        for action in [[[1.0], [-1.0]]] * 2 + [[[-0.6], [0.2]]] * 7 + [[[0.0], [2.0]]]:
            step = env.step(np.asarray(action, np.float32))
        assert step.truncated.all()
        first, second = step.measures
        assert np.array_equal(first, [0, 5, 1, np.nan, 0], equal_nan=True)
        assert np.array_equal(second, [1, 9, 2, np.nan, 0], equal_nan=True)
        env.core.init(keys(2), np.asarray([0, 9]))
        step = env.core.advance(np.asarray([0, 9]), np.zeros((2, 1), np.float32))[1]
        assert step.truncated.tolist() == [False, True] and np.isnan(step.measures[1]).all()
    finally:
        env.close()


def test_they_are_asked_for_on_the_command_line_and_saved():
    command = cli.parse(["train", "--env", "LineSample-v0", "--measures", "is_success,goal_met:sum"])
    assert command.gymnasium.measures == "is_success,goal_met:sum"
    for wrong in ("goal_met:mean", ("a", "a:sum")):
        with pytest.raises(cppo.UsageError, match="write each key once, as key, key:sum or key:max"):
            from_gymnasium("LineSample-v0", measures=wrong)
