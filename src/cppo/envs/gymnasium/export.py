"""All environments as ordinary Gymnasium environments.

    import gymnasium, cppo.envs.gym_export
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
from cppo.envs.tasks.scenes import SCENES
from cppo.types import BatchedEnv, Box, Discrete, EnvSpec, Step, UsageError

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


def functions_of(env: BatchedEnv) -> tuple[Any, Any]:
    """``init`` and ``advance``, compiled where the environment is written in JAX, with NumPy results."""
    if not env.jittable:
        return env.init, env.advance
    init, advance = jax.jit(env.init), jax.jit(env.advance)

    def step(state: Any, actions: np.ndarray) -> tuple[Any, Step]:
        state, seen = advance(state, actions)
        return state, Step(*(np.asarray(part) for part in seen))

    return init, step


def checked(spec: EnvSpec, actions: Any, worlds: int) -> np.ndarray:
    """Actions of ``worlds`` worlds, after checking their shape and finiteness."""
    found = np.asarray(actions)
    wanted = (worlds, *spec.action.shape)
    if found.shape != wanted:
        one = "" if worlds > 1 else f" (one world: give shape {spec.action.shape})"
        raise UsageError(f"actions have shape {found.shape}; {spec.name} needs {wanted}{one}")
    if not np.isfinite(found).all():
        raise UsageError("actions contain NaN or infinity: a policy that gives them has diverged")
    return found


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
        self._env: Any = _build(name, 1)
        self._init, self._advance = functions_of(self._env)
        self.observation_space, self.action_space = spaces_of(self._env.spec)
        self._state: Any = None
        self._seen: Any = None  # state and observation before an autoreset, for the picture
        self._picture: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, obs = self._init(self.np_random.integers(0, 2**32, (1, 2), np.uint32))
        self._seen = self._state, np.asarray(obs[0])
        return np.array(obs[0]), {}

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        if self._state is None:
            raise UsageError("call reset() before the first step")
        self._state, step = self._advance(self._state, checked(self._env.spec, np.asarray(action)[None], 1))
        self._seen = self._state, step.obs[0]
        info = costs_of(self._env.spec, step, 0)
        reward, ends = float(step.reward[0]), (bool(step.terminated[0]), bool(step.truncated[0]))
        middle = (reward, info["cost"]) if self.six_tuple else (reward,)
        return np.array(step.final_obs[0]), *middle, *ends, info

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        if self._picture is None:
            self._picture = self._camera()
        return self._picture.draw(*self._seen)

    def _camera(self) -> Any:
        if self._env.backend == "jax":
            from cppo.video import camera_of  # refuses what has no picture

            return camera_of(self.name, "top")
        from cppo.envs.rendering import Picture  # loads OpenGL

        return Picture(SCENES.get(self.name), *self._size)

    def close(self) -> None:
        if hasattr(self._picture, "close"):
            self._picture.close()
        self._picture = None


class GymVectorEnv(VectorEnv):
    """W worlds in one batch. A world that ends is reset in the same step; ``info["final_obs"]`` keeps its last view."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, name: str, num_envs: int = 1):
        self._env: Any = _build(name, num_envs)
        self._init, self._advance = functions_of(self._env)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = spaces_of(self._env.spec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, obs = self._init(self.np_random.integers(0, 2**32, (self.num_envs, 2), np.uint32))
        return np.array(obs), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._state is None:
            raise UsageError("call reset() before the first step")
        self._state, step = self._advance(self._state, checked(self._env.spec, actions, self.num_envs))
        ended = step.terminated | step.truncated
        info = {"cost": np.asarray(step.cost).max(1), "final_obs": np.array(step.final_obs), "_final_obs": ended}
        if self._env.spec.num_costs > 1:
            info |= {f"cost_{name}": np.array(step.cost[:, i]) for i, name in enumerate(self._env.spec.cost_names)}
        return np.array(step.obs), np.array(step.reward), np.array(step.terminated), np.array(step.truncated), info


def _build(name: str, num_envs: int) -> BatchedEnv:
    """On the CPU, whatever else is installed: what Gymnasium hands over and takes back lives there."""
    return envs.build(name, num_envs, "jax" if "jax" in envs.backends(name) else "threads")


def register() -> None:
    """Make the environments known to Gymnasium; importing this module does so."""
    for name in envs.names():
        gymnasium.register(
            id=f"cppo/{name}-v0",
            entry_point="cppo.envs.gym_export:GymEnv",
            vector_entry_point="cppo.envs.gym_export:GymVectorEnv",
            kwargs={"name": name},
        )


register()
