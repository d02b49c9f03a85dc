"""The environments that need MuJoCo, by name."""

from __future__ import annotations

from collections.abc import Callable

from cppo.envs.ant_circle import AntCircleEnv
from cppo.envs.physics import warp
from cppo.envs.safety_gym import SafetyGymEnv
from cppo.envs.tasks.scenes import SCENES
from cppo.envs.warp_tasks import WarpAntCircle, WarpNavigation
from cppo.types import BatchedEnv, UsageError

THREADS: dict[str, Callable[[int], BatchedEnv]] = {
    **{name: lambda num_envs, scene=scene: SafetyGymEnv(scene, num_envs) for name, scene in SCENES.items()},
    "AntCircle": AntCircleEnv,
}
WARP: dict[str, Callable[[int], BatchedEnv]] = {
    **{name: lambda num_envs, scene=scene: WarpNavigation(scene, num_envs) for name, scene in SCENES.items()},
    "AntCircle": WarpAntCircle,
}
TABLE: dict[str, dict[str, Callable[[int], BatchedEnv]]] = {
    "warp": WARP,
    "threads": THREADS,
}  # backend -> name -> environment


def build(name: str, num_envs: int, backend: str = "threads") -> BatchedEnv:
    """``num_envs`` worlds of the environment ``name`` on ``backend``."""
    if backend not in TABLE:
        raise UsageError(f"backend is {backend!r}, expected one of {', '.join(TABLE)}")
    if name not in TABLE[backend]:
        raise UsageError(f"no environment {name!r} on {backend!r}; it has {', '.join(TABLE[backend])}")
    if num_envs < 1:
        raise UsageError(f"num_envs is {num_envs}, expected 1 or more")
    if backend == "warp":
        warp.require()
    return TABLE[backend][name](num_envs)


def best() -> str:
    """The fastest backend that works here."""
    return "warp" if warp.available() else "threads"
