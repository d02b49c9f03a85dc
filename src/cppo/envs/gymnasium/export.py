"""All environments as ordinary Gymnasium environments.

    import gymnasium, cppo.envs.gymnasium.export
    env = gymnasium.make("cppo/PointGoal1-v0", render_mode="rgb_array")     # info["cost"] holds the step's cost
    envs = gymnasium.make_vec("cppo/PointGoal1-v0", num_envs=64)            # batched, one call for all worlds

``info["cost"]`` is 1 where any constraint is charged, as safety-gymnasium's total cost is; with several constraints
``info["cost_hazards"]`` and so on tell them apart. ``six_tuple=True`` returns safety-gymnasium's (obs, reward, cost,
terminated, truncated, info); Gymnasium's checker knows five values only, so pass ``disable_env_checker=True`` with it.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from cppo import envs
from cppo.types import Box, Discrete, EnvSpec, Step, UsageError

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise UsageError(f"Gymnasium is not installed ({error}): pip install 'cppo[gymnasium]'") from error


def spaces_of(spec: EnvSpec) -> tuple[gymnasium.spaces.Box, gymnasium.Space[Any]]:
    """Observation and action space of one world."""
    if not isinstance(spec.action, Box):
        assert isinstance(spec.action, Discrete)  # none of ours has several choices at once
        return gymnasium.spaces.Box(-np.inf, np.inf, spec.obs_shape, np.float32), gymnasium.spaces.Discrete(
            spec.action.n
        )
    low, high = (np.asarray(side, np.float32) for side in (spec.action.low, spec.action.high))
    observations = gymnasium.spaces.Box(-np.inf, np.inf, spec.obs_shape, np.float32)
    return observations, gymnasium.spaces.Box(low, high, dtype=np.float32)


def costs_of(spec: EnvSpec, step: Step, world: int) -> dict[str, float]:
    """The cost of a world's step (the greatest, with several constraints), and each constraint's."""
    costs = {f"cost_{name}": float(step.cost[world, i]) for i, name in enumerate(spec.cost_names)}
    return {"cost": float(np.max(step.cost[world]))} | (costs if len(costs) > 1 else {})


class GymEnv(gymnasium.Env):
    """One world."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(
        self, name: str, render_mode: str | None = None, six_tuple: bool = False, width: int = 480, height: int = 480
    ):
        self.name, self.render_mode, self.six_tuple = name, _checked(render_mode), six_tuple
        self._size = width, height
        self.worlds = _make(name, 1)
        self.observation_space, self.action_space = spaces_of(self.worlds.spec)
        self._seen: Any = None  # state and observation before an autoreset, for the picture
        self._picture: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        obs = self.worlds.start(self.np_random.integers(0, 2**32, (1, 2), np.uint32))
        self._seen = self.worlds.state, obs[0]
        return np.array(obs[0]), {}

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        step = self.worlds.step(np.asarray(action)[None])
        self._seen = self.worlds.state, step.obs[0]
        info = costs_of(self.worlds.spec, step, 0)
        reward, ends = float(step.reward[0]), (bool(step.terminated[0]), bool(step.truncated[0]))
        middle = (reward, info["cost"]) if self.six_tuple else (reward,)
        return np.array(step.final_obs[0]), *middle, *ends, info

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        if self._picture is None:
            self._picture = _camera(self.name, *self._size)
        return self._picture.draw(*self._seen)

    def close(self) -> None:
        if hasattr(self._picture, "close"):
            self._picture.close()
        self._picture = None


class GymVectorEnv(VectorEnv):
    """W worlds in one batch. A world that ends is reset in the same step; ``info["final_obs"]`` keeps its last view.

    ``render`` gives a picture of each world.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30, "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self, name: str, num_envs: int = 1, render_mode: str | None = None, width: int = 480, height: int = 480
    ):
        self.name, self.render_mode, self._size = name, _checked(render_mode), (width, height)
        self.worlds, self.num_envs = _make(name, num_envs), num_envs
        self._obs: Any = None
        self._picture: Any = None
        self.single_observation_space, self.single_action_space = spaces_of(self.worlds.spec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._obs = self.worlds.start(self.np_random.integers(0, 2**32, (self.num_envs, 2), np.uint32))
        return np.array(self._obs), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        step, spec = self.worlds.step(actions), self.worlds.spec
        ended = step.terminated | step.truncated
        info = {"cost": np.asarray(step.cost).max(1), "final_obs": np.array(step.final_obs), "_final_obs": ended}
        if spec.num_costs > 1:
            info |= {f"cost_{name}": np.array(step.cost[:, i]) for i, name in enumerate(spec.cost_names)}
        self._obs = step.obs
        return np.array(step.obs), np.array(step.reward), np.array(step.terminated), np.array(step.truncated), info

    def render(self) -> tuple[np.ndarray, ...] | None:
        if self.render_mode is None:
            return None
        if self._picture is None:
            self._picture = _camera(self.name, *self._size)
        one = lambda world: jax.tree.map(lambda leaf: leaf[world : world + 1], self.worlds.state)  # noqa: E731
        return tuple(np.array(self._picture.draw(one(i), self._obs[i])) for i in range(self.num_envs))

    def close_extras(self, **options: Any) -> None:
        if hasattr(self._picture, "close"):
            self._picture.close()
        self._picture = None


def _checked(render_mode: str | None) -> str | None:
    if render_mode not in (None, "rgb_array"):
        raise UsageError(f"render_mode is {render_mode!r}, expected None or 'rgb_array'")
    return render_mode


def _camera(name: str, width: int, height: int) -> Any:
    view = envs.view(name)  # refuses what has no picture
    return view.picture(width, height) if view.picture else view.above(min(width, height))


def _make(name: str, num_envs: int) -> envs.VectorEnv:
    """On the CPU, whatever else is installed: what Gymnasium hands over and takes back lives there."""
    return envs.make(name, num_envs, envs.backends(name)[-1])


def register() -> None:
    """Make the environments known to Gymnasium; importing this module does so."""
    for name in envs.names():
        gymnasium.register(
            id=f"cppo/{name}-v0",
            entry_point="cppo.envs.gymnasium.export:GymEnv",
            vector_entry_point="cppo.envs.gymnasium.export:GymVectorEnv",
            kwargs={"name": name},
        )


register()
