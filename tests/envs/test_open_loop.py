"""A hundred steps in open loop against the original, robots alone on the floor (recorded, MuJoCo 2.3.3)."""

import jax
import numpy as np
import pytest
from worlds import FOLDER, build


@pytest.mark.parametrize(("name", "runs"), [("CarCircle0", 2), ("PointCircle0", 2)])
def test_open_loop(name, runs):
    with np.load(FOLDER / "OpenLoop.npz") as data:
        parts = [[data[f"{name}.{run}.{key}"] for run in range(runs)] for key in ("start", "first", "action", "qpos")]
    start, first, actions, wanted = (np.array(part) for part in parts)
    env = build(name, runs)
    state, _ = env.init(np.asarray(jax.random.split(jax.random.PRNGKey(0), runs)))
    mocap = state.physics.mocap
    if name.startswith("Point"):
        zero = np.zeros((runs, 1))
        mocap = np.concatenate([start[:, :2], zero + 0.1, start[:, 2:3], zero, zero, start[:, 3:]], 1)
    physics = state.physics._replace(qpos=first, warm=np.zeros_like(state.physics.warm), mocap=mocap)
    state = state._replace(physics=physics, task=state.task._replace(start=start))
    for t in range(actions.shape[1]):
        state, _ = env.advance(state, actions[:, t])
        np.testing.assert_allclose(state.physics.qpos, wanted[:, t], atol=1e-4, err_msg=f"step {t}")
    assert np.abs(wanted[:, -1] - first).max() > 0.3  # they did move
