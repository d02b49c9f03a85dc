"""Every environment as a row: what is known of it beforehand, and where its parts are found.

Reading a row builds nothing and imports neither MuJoCo nor Warp; its parts are imported when they are first called.
A new task is a folder beside these and a row here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from cppo.envs import point_circle, probes
from cppo.envs.ant_circle import task as ant_circle
from cppo.envs.batched import JaxEnv, World
from cppo.envs.safety_gym.scenes import SCENES, Scene
from cppo.envs.velocity.robots import VELOCITY, Robot
from cppo.envs.views import View
from cppo.types import BatchedEnv, EnvSpec


@dataclass(frozen=True)
class Environment:
    """What the rest of the package asks of an environment; a field that is None is something it cannot do."""

    spec: EnvSpec
    family: str  # a heading of ``cppo envs``
    backends: dict[str, Callable[[int], BatchedEnv]]  # the best one first; the last one runs everywhere
    view: Callable[[], View] | None = None
    replay: Callable[..., dict[str, Any]] | None = None  # its ``recordings.step_once``, see ``cppo.envs.replay``
    bare: Callable[[Any], Callable[..., Any]] | None = None  # of an environment: rolls its model from (state, actions)
    wanted: float | None = None  # steps to make on threads while that makes one
    peer: str | None = None  # its name in safety-gymnasium


@dataclass(frozen=True)
class Lazy:
    """A function at ``module:name`` of this package, imported when it is called; ``given`` are its first arguments."""

    path: str
    given: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any) -> Any:
        module, name = self.path.split(":")
        return getattr(importlib.import_module(f"cppo.envs.{module}"), name)(*self.given, *arguments)


WANTED = {"PointGoal1": 5.0, "PointPush1": 3.0, "CarPush1": 0.8}  # the scenes of the paper


def _jax(world: World, family: str, view: Callable[[], View] | None = None) -> Environment:
    return Environment(world.spec, family, {"jax": partial(JaxEnv, world)}, view)


def _safety_gym(scene: Scene) -> Environment:
    gpu = {"warp": Lazy("safety_gym.warp:WarpNavigation", (scene,))}
    return Environment(
        scene.spec,
        f"Safety Gym, {scene.task.capitalize()}",
        {
            **(gpu if scene.robot.contacts and not scene.buttons else {}),
            "threads": Lazy("safety_gym.threads:SafetyGymEnv", (scene,)),
        },
        view=Lazy("safety_gym.view:view", (scene,)),
        replay=Lazy("safety_gym.recordings:step_once", (scene,)),
        bare=Lazy("safety_gym.threads:bare"),
        wanted=WANTED.get(scene.name),
        peer=f"Safety{scene.name}-v0",
    )


def _velocity(robot: Robot) -> Environment:
    return Environment(
        robot.spec,
        "Safety Velocity",
        {"threads": Lazy("velocity.threads:VelocityEnv", (robot,))},
        view=Lazy("velocity.view:view", (robot,)),
        replay=Lazy("velocity.recordings:step_once", (robot,)),
        bare=Lazy("velocity.threads:bare"),
        peer=f"Safety{robot.spec.name}-v1",
    )


ROWS = (
    _jax(point_circle.PointCircle(), "Circles", point_circle.view),
    _jax(probes.ProbeBox(), "Probes"),
    _jax(probes.ProbeDiscrete(), "Probes"),
    _jax(probes.ProbeState(), "Probes"),
    _jax(probes.ProbeTwo(), "Probes"),
    *map(_safety_gym, SCENES.values()),
    *map(_velocity, VELOCITY.values()),
    Environment(
        ant_circle.SPEC,
        "Circles",
        {"warp": Lazy("ant_circle.warp:WarpAntCircle"), "threads": Lazy("ant_circle.threads:AntCircleEnv")},
        view=Lazy("ant_circle.view:view"),
        replay=Lazy("ant_circle.recordings:step_once"),
        bare=Lazy("ant_circle.threads:bare"),
        wanted=0.8,
    ),
)
TABLE: dict[str, Environment] = {row.spec.name: row for row in ROWS}
# What others call them: safety-gymnasium, and Gymnasium once cppo.envs.gymnasium.export is imported.
ALIASES = {row.peer: name for name, row in TABLE.items() if row.peer} | {f"cppo/{name}-v0": name for name in TABLE}
