"""One environment step from every row of recorded transitions: what parity tests are built on.

``transitions`` holds arrays named as in the recordings, one row a step: qpos, qvel, warm, agent_xy0 and agent_rot0 (the
robot body's compiled position and quaternion), goal, hazards, pillar (one, or several along an axis of their own),
last_a, last_b, action, for Button buttons, wanted, timer, gremlins and clock (``button.Pressing``) and wanted_next and
timer_next, and goal_next, which is used where the goal is met. What a task does not have (Circle's goal)
may hold anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from cppo.envs.mujoco.precision import double_on_cpu
from cppo.envs.mujoco.warp import WarpPhysics
from cppo.envs.safety_gym import button, navigation
from cppo.envs.safety_gym.button import Pressing
from cppo.envs.safety_gym.models import navigation_model
from cppo.envs.safety_gym.navigation import Task
from cppo.envs.safety_gym.scenes import SUBSTEPS, Scene
from cppo.envs.safety_gym.threads import Physics, SafetyGymEnv, SafetyGymState, merge, state_of
from cppo.envs.safety_gym.warp import room
from cppo.types import UsageError, as_numpy

Transitions = Mapping[str, np.ndarray]
Judged = tuple[Array, Array, Array, Array, Array]  # observation, reward, cost, whether the goal was met, the fall
Stepper = Callable[[Scene, SafetyGymState, np.ndarray], tuple[Physics, np.ndarray]]


def step_once(scene: Scene, transitions: Transitions, backend: str, physics: str) -> dict[str, np.ndarray]:
    """Step every row once; see ``cppo.envs.replay``. Returns goal_met and terminated, too."""
    _check(scene, transitions)
    step = _recorded_step(transitions) if physics == "recorded" else STEPPERS[backend]
    state = navigation_state(scene, transitions)
    ctrl = np.clip(np.asarray(transitions["action"], np.float64), scene.robot.low, scene.robot.high)
    after, sensors = step(scene, state, ctrl)
    goal_next = transitions["goal_next"][:, :2]
    with nullcontext() if backend == "warp" else double_on_cpu():  # outside, JAX computes in float32
        if scene.buttons:
            renewed = _renewed(transitions, state.task.pressing)
            judged = jax.jit(_judge_button, static_argnums=0)(scene, state.task, after.qpos, sensors, renewed)
        else:
            judged = jax.jit(_judge, static_argnums=0)(scene, state.task, after.qpos, sensors, goal_next)
    obs, reward, cost, met, fallen = (np.asarray(x) for x in judged)
    seen = {"qpos_next": np.asarray(after.qpos), "qvel_next": np.asarray(after.qvel)}
    return seen | {"obs": obs, "reward": reward, "cost": cost, "goal_met": met, "terminated": fallen}


def _check(scene: Scene, transitions: Transitions) -> None:
    needed = ("qpos", "qvel", "warm", "agent_xy0", "agent_rot0", "goal", "hazards", "last_a", "last_b", "action")
    pressing = (*Pressing._fields, "wanted_next", "timer_next") if scene.buttons else ()
    missing = [key for key in (*needed, "pillar", "goal_next", *pressing) if key not in transitions]
    if missing:
        raise UsageError(
            f"the transitions have no {', '.join(missing)}; {scene.name} needs them (see cppo.envs.replay)"
        )
    rows = len(transitions["qpos"])
    sizes = {"qpos": scene.qpos_size, "qvel": scene.qvel_size, "warm": scene.qvel_size}
    for key, size in (sizes | {"action": scene.robot.actuated}).items():
        if np.shape(transitions[key]) != (rows, size):
            raise UsageError(f"{key} has shape {np.shape(transitions[key])}; {scene.name} needs {(rows, size)}")


def _judge(scene: Scene, task: Task, qpos: Array, sensors: Array, goal_next: Array) -> Judged:
    seen = navigation.look(scene, task.start, qpos, sensors)
    cost, fallen = navigation.costs(scene, task, seen), navigation.fallen(scene, seen)
    cost = cost if cost.shape[1] > 1 else cost[:, 0]
    if scene.task == "circle":
        reward = navigation.circle_reward(scene, seen)
        return navigation.observe(scene, task, seen), reward, cost, jnp.zeros(len(reward), bool), fallen
    reward, met = navigation.reward_and_success(scene, task.last, navigation.distances(scene, task.goal, seen))
    obs = navigation.observe(scene, task._replace(goal=jnp.where(met[:, None], goal_next, task.goal)), seen)
    return obs, reward, cost, met, fallen


def _renewed(transitions: Transitions, pressing: Pressing) -> Pressing:
    """The recorded choice of the next button."""
    wanted, timer = (np.asarray(transitions[f"{key}_next"], np.int32) for key in ("wanted", "timer"))
    return pressing._replace(wanted=wanted, timer=timer)


def _judge_button(scene: Scene, task: Task, qpos: Array, sensors: Array, renewed: Pressing) -> Judged:
    seen = navigation.look(scene, task.start, qpos, sensors)
    keys, ages = jnp.zeros((len(qpos), 2), jnp.uint32), jnp.zeros(len(qpos), jnp.int32)
    after, outcome = navigation.advance(scene, task, seen, keys, ages)
    obs = navigation.observe(scene, after._replace(pressing=renewed, goal=button.wanted_place(renewed)), seen)
    return obs, outcome.reward, outcome.cost[:, 0], outcome.goal_met, outcome.fallen


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
        pressing=_pressing(transitions) if scene.buttons else (),
    )
    with double_on_cpu():
        mocap = np.concatenate([np.reshape(part, (rows, -1)) for part in navigation.mocap(scene, task)], 1)
    physics = Physics(transitions["qpos"], transitions["qvel"], transitions["warm"], mocap)
    return state_of(scene, physics, task, np.zeros((rows, 2), np.uint32), np.zeros(rows, np.int32))


def _pressing(transitions: Transitions) -> Pressing:
    wanted, timer = (np.asarray(transitions[key], np.int32) for key in ("wanted", "timer"))
    return Pressing(transitions["buttons"], wanted, timer, transitions["gremlins"], transitions["clock"])


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
        sensors = env.threads.seen((qpos, qvel, warm), control, 0).sensors
        return Physics(qpos, qvel, warm, state.physics.mocap), sensors

    return step


STEPPERS: dict[str, Stepper] = {"threads": _threads_step, "warp": _warp_step}
