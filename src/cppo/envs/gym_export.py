"""The MuJoCo environments as ordinary Gymnasium environments.

    import gymnasium, cppo.envs.gym_export
    env = gymnasium.make("cppo/PointGoal1-v0", render_mode="rgb_array")     # info["cost"] holds the step's cost
    envs = gymnasium.make_vec("cppo/PointGoal1-v0", num_envs=64)            # batched, one call for all worlds

``six_tuple=True`` returns safety-gymnasium's (obs, reward, cost, terminated, truncated, info); Gymnasium's checker
knows five values only, so pass ``disable_env_checker=True`` with it.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from cppo.envs.mujoco_tasks import THREADS, build
from cppo.envs.tasks.scenes import SCENES
from cppo.types import EnvSpec, Step, UsageError


def spaces_of(spec: Any) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Observation and action space of one world."""
    low, high = (np.asarray(side, np.float32) for side in (spec.action.low, spec.action.high))
    observations = gymnasium.spaces.Box(-np.inf, np.inf, spec.obs_shape, np.float32)
    return observations, gymnasium.spaces.Box(low, high, dtype=np.float32)


def costs_of(spec: EnvSpec, step: Step, world: int) -> dict[str, float]:
    """The total cost of a world's step, and each constraint's where there are several."""
    costs = {f"cost_{name}": float(step.cost[world, i]) for i, name in enumerate(spec.cost_names)}
    return {"cost": float(step.cost[world].sum())} | (costs if len(costs) > 1 else {})


class GymEnv(gymnasium.Env):
    """One world."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(
        self, name: str, render_mode: str | None = None, six_tuple: bool = False, width: int = 480, height: int = 480
    ):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(f"render_mode is {render_mode!r}, expected None or 'rgb_array'")
        self.name, self.render_mode, self.six_tuple = name, render_mode, six_tuple
        self._size = width, height
        self._env: Any = build(name, 1)
        self.observation_space, self.action_space = spaces_of(self._env.spec)
        self._state: Any = None
        self._seen: Any = None  # state and observation before an autoreset, for the picture
        self._picture: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, obs = self._env.init(self.np_random.integers(0, 2**32, (1, 2), np.uint32))
        self._seen = self._state, obs[0]
        return np.array(obs[0]), {}

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        if self._state is None:
            raise UsageError("call reset() before the first step")
        self._state, step = self._env.advance(self._state, np.asarray(action)[None])
        self._seen = self._state, step.obs[0]
        info = costs_of(self._env.spec, step, 0)
        reward, ends = float(step.reward[0]), (bool(step.terminated[0]), bool(step.truncated[0]))
        middle = (reward, info["cost"]) if self.six_tuple else (reward,)
        return np.array(step.final_obs[0]), *middle, *ends, info

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        from cppo.envs.rendering import Picture  # loads OpenGL

        self._picture = self._picture or Picture(SCENES.get(self.name), *self._size)
        return self._picture.draw(*self._seen)

    def close(self) -> None:
        if self._picture is not None:
            self._picture.close()
            self._picture = None


class GymVectorEnv(VectorEnv):
    """W worlds in one batch. A world that ends is reset in the same step; ``info["final_obs"]`` keeps its last view."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, name: str, num_envs: int = 1):
        self._env: Any = build(name, num_envs)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = spaces_of(self._env.spec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, obs = self._env.init(self.np_random.integers(0, 2**32, (self.num_envs, 2), np.uint32))
        return np.array(obs), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._state is None:
            raise UsageError("call reset() before the first step")
        self._state, step = self._env.advance(self._state, actions)
        ended = step.terminated | step.truncated
        info = {"cost": np.asarray(step.cost).sum(1), "final_obs": np.array(step.final_obs), "_final_obs": ended}
        return np.array(step.obs), np.array(step.reward), np.array(step.terminated), np.array(step.truncated), info


def register() -> None:
    """Make the environments known to Gymnasium; importing this module does so."""
    for name in THREADS:
        gymnasium.register(
            id=f"cppo/{name}-v0",
            entry_point="cppo.envs.gym_export:GymEnv",
            vector_entry_point="cppo.envs.gym_export:GymVectorEnv",
            kwargs={"name": name},
        )


register()
