"""The lidar against a plain loop over targets."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cppo.envs.safety_gym.lidar import lidars

BIN = 2 * np.pi / 16


def plain(position, rotation, targets):
    seen = np.zeros(16)
    for x, y in targets:
        east, north = ((np.array([x, y, 0.0]) - position) @ rotation)[:2]
        angle = np.arctan2(north, east) % (2 * np.pi)
        bin_, close = int(angle / BIN) % 16, max(0.0, 3 - np.hypot(east, north)) / 3
        part = angle / BIN - int(angle / BIN)
        for index, value in ((bin_, close), (bin_ + 1, part * close), (bin_ - 1, (1 - part) * close)):
            seen[index % 16] = max(seen[index % 16], value)
    return seen


def turned(yaw, tilt):
    about_z = [[np.cos(yaw), -np.sin(yaw), 0], [np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]]
    about_x = [[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]]
    return np.array(about_z) @ np.array(about_x)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-0.3, 0.3))
def test_equals_a_plain_loop(seed, tilt):
    rng = np.random.default_rng(seed)
    position, rotation = np.array([*rng.uniform(-2, 2, 2), 0.1]), turned(rng.uniform(0, 7), tilt)
    groups = [rng.uniform(-2, 2, (count, 2)) for count in (1, 8, 2)]
    with jax.enable_x64(True):
        seen = lidars(position[None], rotation[None], [group[None] for group in groups])
    for found, group in zip(seen, groups, strict=True):
        np.testing.assert_allclose(found[0], plain(position, rotation, group), atol=1e-9)


def test_out_of_range_is_dark_and_single_precision_agrees():
    position, rotation = np.array([[0.0, 0, 0.1]]), np.eye(3)[None]
    near, far = np.array([[[1.0, 0.3]]]), np.array([[[5.0, 5.0]]])
    close, dark = lidars(position.astype(np.float32), rotation.astype(np.float32), [near.astype(np.float32), far])
    np.testing.assert_allclose(close[0], plain(position[0], rotation[0], near[0]), atol=1e-5)
    assert not dark.any()
