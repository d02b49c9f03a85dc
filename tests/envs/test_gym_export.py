"""The environments through Gymnasium's own door."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import cppo.envs.gym_export  # noqa: F401 (registers the environments)
from cppo.types import UsageError


@pytest.mark.parametrize("name", ["PointGoal1", "PointPush1", "CarPush1", "AntCircle"])
def test_passes_the_checker(name):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(infinity|-inf|inf).*")
        check_env(gymnasium.make(f"cppo/{name}-v0").unwrapped, skip_render_check=True)


def test_five_values_six_values_and_costs():
    env = gymnasium.make("cppo/PointGoal1-v0")
    first, _ = env.reset(seed=3)
    obs, _, terminated, truncated, info = env.step(np.zeros(2, np.float32))
    assert obs.shape == (60,) and info["cost"] == 0.0 and not (terminated or truncated)
    other = gymnasium.make("cppo/PointGoal1-v0", six_tuple=True, disable_env_checker=True)
    np.testing.assert_array_equal(other.reset(seed=3)[0], first)
    assert len(other.step(np.zeros(2, np.float32))) == 6


def test_episode_ends_at_its_limit():
    env = gymnasium.make("cppo/PointGoal1-v0").unwrapped
    env.reset(seed=0)
    env._state = env._state._replace(age=np.array([998], np.int32))
    assert not env.step(np.ones(2))[3]
    assert env.step(np.ones(2))[3]


def test_vector_version():
    envs = gymnasium.make_vec("cppo/PointGoal1-v0", num_envs=4)
    obs, _ = envs.reset(seed=0)
    assert obs.shape == (4, 60) and envs.observation_space.contains(obs)
    obs, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
    assert reward.shape == terminated.shape == truncated.shape == info["cost"].shape == (4,)


def test_render():
    env = gymnasium.make("cppo/PointGoal1-v0", render_mode="rgb_array", width=96, height=64)
    env.reset(seed=0)
    try:
        picture = env.render()
    except UsageError as error:
        pytest.skip(str(error))
    assert picture.shape == (64, 96, 3) and picture.dtype == np.uint8 and picture.std() > 5
    env.close()
