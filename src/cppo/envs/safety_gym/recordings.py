"""One environment step from every row of recorded transitions: what parity tests are built on.

``cppo.envs.replay(name, transitions, backend)`` calls ``replay`` below; the module itself is callable, so that both
spellings work.

``transitions`` holds arrays named as in the recordings, one row a step. Safety Gym: qpos, qvel, warm, agent_xy0 and
agent_rot0 (the robot body's compiled position and quaternion), goal, hazards, pillar (one, or several along an axis of
their own), last_a, last_b, action, and goal_next, which is used where the goal is met. AntCircle: qpos, qvel, warm,
xpos_prev, action. What a task does not have (Circle's goal) may hold anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cppo.envs.ant_circle import AntCircleEnv
from cppo.envs.physics.models import navigation_model
from cppo.envs.physics.warp import WarpPhysics
from cppo.envs.precision import double_on_cpu
from cppo.envs.safety_gym import SUBSTEPS, Physics, SafetyGymEnv, SafetyGymState, merge, state_of
from cppo.envs.tasks import ant_circle, navigation
from cppo.envs.tasks.navigation import Task
from cppo.envs.tasks.scenes import SCENES, Scene
from cppo.envs.warp_tasks import WarpAntCircle, room
from cppo.types import UsageError, as_numpy

Transitions = Mapping[str, np.ndarray]
Stepper = Callable[[Scene, SafetyGymState, np.ndarray], tuple[Physics, np.ndarray]]


def replay(
    name: str, transitions: Transitions, backend: str = "threads", physics: str = "simulated"
) -> dict[str, np.ndarray]:
    """Step every row once; returns qpos_next, qvel_next, obs, reward, cost and goal_met.

    ``cost`` has one number for each row, or (row, constraint) where the scene has several constraints.
    ``physics="recorded"`` takes qpos_next and qvel_next from the transitions, so that only sensors and task are
    computed. AntCircle returns xpos_next and terminated in place of goal_met.
    """
    if physics not in ("simulated", "recorded"):
        raise UsageError(f"physics is {physics!r}, expected 'simulated' or 'recorded'")
    if name == "AntCircle" and backend in ANT_STEPPERS:
        return _replay_ant(transitions, physics, backend)
    if name not in SCENES or backend not in STEPPERS:
        known = ", ".join([*SCENES, "AntCircle"])
        raise UsageError(f"no replay of {name!r} on {backend!r}: names are {known}; backends are {', '.join(STEPPERS)}")
    _check(SCENES[name], transitions)
    step = _recorded_step(transitions) if physics == "recorded" else STEPPERS[backend]
    scene = SCENES[name]
    state = navigation_state(scene, transitions)
    ctrl = np.clip(np.asarray(transitions["action"], np.float64), -1.0, 1.0)
    after, sensors = step(scene, state, ctrl)
    goal_next = transitions["goal_next"][:, :2]
    with nullcontext() if backend == "warp" else double_on_cpu():  # outside, JAX computes in float32
        judged = jax.jit(_judge, static_argnums=0)(scene, state.task, after.qpos, sensors, goal_next)
    obs, reward, cost, met = (np.asarray(x) for x in judged)
    seen = {"qpos_next": np.asarray(after.qpos), "qvel_next": np.asarray(after.qvel)}
    return seen | {"obs": obs, "reward": reward, "cost": cost, "goal_met": met}


def _check(scene: Scene, transitions: Transitions) -> None:
    needed = ("qpos", "qvel", "warm", "agent_xy0", "agent_rot0", "goal", "hazards", "last_a", "last_b", "action")
    missing = [key for key in (*needed, "pillar", "goal_next") if key not in transitions]
    if missing:
        raise UsageError(
            f"the transitions have no {', '.join(missing)}; {scene.name} needs them (see cppo.envs.replay)"
        )
    rows = len(transitions["qpos"])
    for key, size in (("qpos", scene.qpos_size), ("qvel", scene.qvel_size), ("warm", scene.qvel_size), ("action", 2)):
        if np.shape(transitions[key]) != (rows, size):
            raise UsageError(f"{key} has shape {np.shape(transitions[key])}; {scene.name} needs {(rows, size)}")


def _judge(scene, task, qpos, sensors, goal_next):
    seen = navigation.look(scene, task.start, qpos, sensors)
    cost = navigation.costs(scene, task, seen)
    cost = cost if cost.shape[1] > 1 else cost[:, 0]
    if scene.task == "circle":
        reward = navigation.circle_reward(seen)
        return navigation.observe(scene, task, seen), reward, cost, jnp.zeros(len(reward), bool)
    reward, met = navigation.reward_and_success(scene, task.last, navigation.distances(scene, task.goal, seen))
    obs = navigation.observe(scene, task._replace(goal=jnp.where(met[:, None], goal_next, task.goal)), seen)
    return obs, reward, cost, met


def navigation_state(scene: Scene, transitions: Transitions) -> SafetyGymState:
    """The environment state before each recorded step."""
    rows = len(transitions["qpos"])
    place, turn = transitions["agent_xy0"][:, :2], transitions["agent_rot0"][:, [0, 3]]
    task = Task(
        goal=transitions["goal"][:, :2],
        hazards=transitions["hazards"][..., :2],
        pillars=transitions["pillar"].reshape(rows, -1, 3)[:, : scene.pillars, :2],
        last=np.stack([transitions["last_a"], transitions["last_b"]], -1),
        start=np.concatenate([place, turn], -1),
    )
    with double_on_cpu():
        mocap = np.concatenate([np.reshape(part, (rows, -1)) for part in navigation.mocap(scene, task)], 1)
    physics = Physics(transitions["qpos"], transitions["qvel"], transitions["warm"], mocap)
    return state_of(scene, physics, task, np.zeros((rows, 2), np.uint32), np.zeros(rows, np.int32))


def _threads_step(scene: Scene, state: SafetyGymState, ctrl: np.ndarray) -> tuple[Physics, np.ndarray]:
    env = SafetyGymEnv(scene, len(ctrl))
    with double_on_cpu():
        after, sensors = jax.jit(merge, static_argnums=0)(scene, state, ctrl, env.simulate(state, ctrl))
    return after, np.asarray(sensors)


def _warp_step(scene: Scene, state: SafetyGymState, ctrl: np.ndarray) -> tuple[Physics, np.ndarray]:
    physics = WarpPhysics(navigation_model(scene), len(ctrl), SUBSTEPS, True, *room(scene))
    task = jax.tree.map(jnp.asarray, state.task)
    qpos, qvel, warm = (jnp.asarray(x) for x in state.physics[:3])
    inputs = physics.pack(qpos, qvel, warm, jnp.asarray(ctrl), *navigation.mocap(scene, task))
    moved = as_numpy(physics.run("step", inputs))
    if moved.overflow.any():
        raise UsageError(f"{scene.name}: a recorded state has more contacts than {physics.room}")
    return Physics(moved.qpos, moved.qvel, moved.warm, state.physics.mocap), moved.sensors


def _recorded_step(transitions: Transitions) -> Stepper:
    def step(scene: Scene, state: SafetyGymState, ctrl: np.ndarray) -> tuple[Physics, np.ndarray]:
        env = SafetyGymEnv(scene, len(ctrl))
        qpos, qvel, warm = (np.asarray(transitions[key]) for key in ("qpos_next", "qvel_next", "warm"))
        control = np.concatenate([ctrl, state.physics.mocap], 1)
        sensors = env.threads.roll(qpos, qvel, warm, control, 1).sensors[:, 0]
        return Physics(qpos, qvel, warm, state.physics.mocap), sensors

    return step


STEPPERS: dict[str, Stepper] = {"threads": _threads_step, "warp": _warp_step}


def _threads_ant(start: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    qpos, qvel, _, torso = AntCircleEnv(len(start[0])).threads.advance(*start)
    return qpos, qvel, torso


def _warp_ant(start: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    qpos, qvel, warm, ctrl = (jnp.asarray(x, jnp.float32) for x in start)
    physics = WarpAntCircle(len(start[0])).physics
    moved = as_numpy(physics.run("step", physics.pack(qpos, qvel, warm, ctrl)))
    return moved.qpos, moved.qvel, moved.bodies[:, 3:5]


ANT_STEPPERS = {"threads": _threads_ant, "warp": _warp_ant}


def _replay_ant(transitions: Transitions, physics: str, backend: str) -> dict[str, np.ndarray]:
    if physics == "recorded":
        qpos, qvel, torso = (transitions[key] for key in ("qpos_next", "qvel_next", "xpos_next"))
    else:
        start = tuple(np.asarray(transitions[key], np.float64) for key in ("qpos", "qvel", "warm", "action"))
        qpos, qvel, torso = ANT_STEPPERS[backend](start)
    with nullcontext() if backend == "warp" else double_on_cpu():
        outcome = as_numpy(ant_circle.advance(*(jnp.asarray(x) for x in (transitions["xpos_prev"], torso, qpos, qvel))))
    seen = {"qpos_next": qpos, "qvel_next": qvel, "xpos_next": torso, "obs": outcome.obs}
    return seen | {"reward": outcome.reward, "cost": outcome.cost[:, 0], "terminated": outcome.terminated}


class _CallableModule(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> dict[str, np.ndarray]:
        return replay(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule
