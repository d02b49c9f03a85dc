"""Checks on what a caller hands to a host environment, with errors that say what to change."""

from __future__ import annotations

from typing import Any

import numpy as np

from cppo.envs.mujoco.arrays import Array
from cppo.types import UsageError


def checked_shape(actions: Array, num_envs: int, size: int) -> Array:
    if actions.shape != (num_envs, size):
        raise UsageError(
            f"actions have shape {actions.shape}, expected {(num_envs, size)}: one row of {size} numbers "
            f"for each of the {num_envs} worlds"
        )
    return actions


def checked_actions(actions: Any, num_envs: int, size: int) -> np.ndarray:
    """Actions as float64, after checking shape and finiteness."""
    action = checked_shape(np.asarray(actions, np.float64), num_envs, size)
    if not np.isfinite(action).all():
        worlds = np.flatnonzero(~np.isfinite(action).all(1))
        raise UsageError(
            f"actions of world {worlds[0]} are not finite: {action[worlds[0]]} ({len(worlds)} of {num_envs} worlds); "
            "a policy that gives NaN has diverged: lower its learning rate or check its observations"
        )
    return action


def checked_keys(keys: Any, num_envs: int) -> np.ndarray:
    """Keys as raw uint32 pairs, one for each world."""
    raw = np.asarray(keys)
    if raw.shape != (num_envs, 2) or raw.dtype != np.uint32:
        raise UsageError(
            f"keys are {raw.dtype} of shape {raw.shape}, expected uint32 of shape {(num_envs, 2)}: "
            "use jax.random.split(jax.random.PRNGKey(seed), num_envs)"
        )
    return raw


def checked_double(leaf: Any) -> None:
    """States are float64; a float32 copy would go on, but not bit for bit."""
    if leaf.dtype != np.float64:
        raise UsageError(f"the environment state is {leaf.dtype}, expected float64: keep it in NumPy arrays, as given")
