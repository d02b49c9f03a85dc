"""The environments through Gymnasium's own door."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import cppo.envs.gymnasium.export  # noqa: F401 (registers the environments)
from cppo.envs import names
from cppo.types import UsageError

QUICK = ["PointGoal1", "CarPush2", "AntCircle", "PointCircle", "ProbeDiscrete"]


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in names() if name not in QUICK)]
)
def test_passes_the_checker(name):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(infinity|-inf|inf).*")
        check_env(gymnasium.make(f"cppo/{name}-v0").unwrapped, skip_render_check=True)


def test_five_values_and_the_six_of_safety_gymnasium():
    """The flag adds the cost behind the reward and changes nothing else."""
    five = gymnasium.make("cppo/PointGoal1-v0")
    six = gymnasium.make("cppo/PointGoal1-v0", six_tuple=True, disable_env_checker=True)
    np.testing.assert_array_equal(five.reset(seed=3)[0], six.reset(seed=3)[0])
    for env in (five.unwrapped, six.unwrapped):  # a hazard under the robot
        task = env.worlds.state.task
        hazards = np.array(task.hazards)
        hazards[0, 0] = task.start[0, :2]
        env.worlds.state = env.worlds.state._replace(task=task._replace(hazards=hazards))
    obs, reward, terminated, truncated, info = five.step(np.ones(2, np.float32))
    assert obs.shape == (60,) and info == {"cost": 1.0} and not (terminated or truncated)
    seen = six.step(np.ones(2, np.float32))
    np.testing.assert_array_equal(seen[0], obs)
    assert seen[1:] == (reward, 1.0, False, False, {"cost": 1.0})


def test_several_costs_are_told_apart_and_total_as_in_the_original():
    env = gymnasium.make("cppo/CarPush2-v0", six_tuple=True, disable_env_checker=True)
    env.reset(seed=0)
    inner = env.unwrapped
    hazards = np.array(inner.worlds.state.task.hazards)
    hazards[0, :] = inner.worlds.state.task.start[0, :2]  # all four hazards at once
    inner.worlds.state = inner.worlds.state._replace(task=inner.worlds.state.task._replace(hazards=hazards))
    _, _, cost, _, _, info = env.step(np.zeros(2, np.float32))
    assert cost == 1.0 and info == {"cost": 1.0, "cost_hazards": 1.0, "cost_pillars": 0.0}


def test_bad_actions_are_refused_with_advice():
    env = gymnasium.make("cppo/PointCircle-v0", disable_env_checker=True).unwrapped
    with pytest.raises(UsageError, match="call reset"):
        env.step(np.zeros(2))
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"PointCircle needs \(1, 2\)"):
        env.step(np.zeros(3))
    with pytest.raises(UsageError, match="NaN"):
        env.step(np.array([np.nan, 0.0]))


def test_episode_ends_at_its_limit():
    env = gymnasium.make("cppo/PointGoal1-v0").unwrapped
    env.reset(seed=0)
    env.worlds.state = env.worlds.state._replace(age=np.array([998], np.int32))
    assert not env.step(np.ones(2))[3]
    assert env.step(np.ones(2))[3]


def test_vector_version():
    envs = gymnasium.make_vec("cppo/PointGoal1-v0", num_envs=4)
    obs, _ = envs.reset(seed=0)
    assert obs.shape == (4, 60) and envs.observation_space.contains(obs)
    obs, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
    assert reward.shape == terminated.shape == truncated.shape == info["cost"].shape == (4,)


def test_the_vector_version_is_one_batch_of_worlds():
    """Whole batches go to the physics in one call a step; a world that ended starts again in the same step."""
    batch = gymnasium.make_vec("cppo/PointCircle-v0", num_envs=8, render_mode="rgb_array", width=64, height=64)
    inner, calls = batch.unwrapped, []
    advance = inner.worlds._advance
    inner.worlds._advance = lambda *given: (calls.append(1), advance(*given))[1]
    batch.reset(seed=0)
    for number in range(1, 51):
        obs, _, _, truncated, info = batch.step(np.ones((8, 2), np.float32))
        assert len(calls) == number and bool(truncated.all()) == (number == 50)
    assert np.array_equal(info["_final_obs"], truncated) and not np.array_equal(info["final_obs"], obs)
    pictures = batch.render()
    assert len(pictures) == 8 and pictures[0].shape == (64, 64, 3)
    assert len({picture.tobytes() for picture in pictures}) > 1
    batch.close()


def test_render():
    env = gymnasium.make("cppo/PointGoal1-v0", render_mode="rgb_array", width=96, height=64)
    env.reset(seed=0)
    try:
        picture = env.render()
    except UsageError as error:
        pytest.skip(str(error))
    assert picture.shape == (64, 96, 3) and picture.dtype == np.uint8 and picture.std() > 5
    env.close()
