"""Every hazard of a scene is charged, whichever the robot stands in."""

import numpy as np

from cppo import envs


def test_each_hazard_is_charged():
    """World i has its i-th hazard under the robot and the others far away; the last world has none near."""
    number = envs.make("PointGoal1").core.scene.hazards
    env = envs.make("PointGoal1", num_envs=number + 1)
    env.reset(seed=0)
    state = env.state
    hazards = np.full(state.task.hazards.shape, 50.0)
    hazards[np.arange(number), np.arange(number)] = np.asarray(state.task.start)[:number, :2]
    env.state = state._replace(task=state.task._replace(hazards=hazards))
    cost = env.step(np.zeros((number + 1, 2), np.float32)).cost[:, 0]
    assert cost.tolist() == [1.0] * number + [0.0]
