"""Record single steps of safety-gymnasium 1.0.0 for the parity tests (tests/data/*.npz).

    python3.10 scripts/record_safety_gymnasium.py tests/data PointGoal2 CarPush2 PointCircle1
    python3.10 scripts/record_safety_gymnasium.py tests/data OpenLoop
    python3.10 scripts/record_safety_gymnasium.py --all FOLDER RacecarButton2

Run it with an interpreter that has safety-gymnasium (``scripts/make_safety_gymnasium.sh``). Each row holds the whole
state before a step and what the step gave, named as in ``cppo.envs.safety_gym.recordings``. Point and Car act at
random, gently, or steer at an object, a pillar, a hazard or the goal. The other robots walk badly: they act at random,
gently, or are thrown at one thing after the other, and so is the Car in ``CarGoal2Thrown`` and its like. Of their 1,000
rows those are written that show something first touched, an end or a goal, and some others (``--all``: every row).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

os.environ.setdefault("MUJOCO_GL", "disabled")

MODES = {
    "Goal": ("random", "small", "goal", "hazard", "vase"),
    "Push": ("random", "small", "hazard", "pillar", "push_box"),
    "Circle": ("random", "small", "orbit"),
    "Button": ("random", "goal", "gremlin", "button", "hazard"),
}
EPISODES, STEPS, KEPT = 10, 150, 10  # per name; every KEPT-th step is written
ROWS, SOME, RARE = 1000, 30, 8  # of robots that are thrown; every SOME-th row is written, and RARE of what is rare
LANES = ("thrown", "random", "thrown", "small")  # modes of their episodes
THROWN = "Thrown"
FLIGHT, FAR, SPEED, LIFT = 10, 0.45, 2.0, 1.0  # steps between throws, m, m / s along, m / s up


def steer(task, robot: str, target: np.ndarray) -> np.ndarray:
    """An action that turns towards ``target`` and drives on."""
    offset = (np.append(target[:2], 0.0) - task.agent.pos) @ task.agent.mat
    if robot == "Point":
        angle = np.arctan2(offset[1], offset[0])
        return np.array([0.05 * (abs(angle) < 0.8), np.clip(2 * angle, -1, 1)])
    angle = np.arctan2(-offset[0], -offset[1])  # the Car's front is -y; seen from there, left is +x
    drive, turn = 0.01 * (abs(angle) < 1.0), np.clip(0.01 * angle, -0.01, 0.01)
    return np.array([drive - turn, drive + turn])


def choose(task, name: str, mode: str, rng: np.random.Generator) -> np.ndarray:
    if mode == "random":
        return rng.uniform(-1, 1, 2)
    if mode == "small":
        return rng.uniform(-0.02, 0.02, 2)
    robot = "Point" if name.startswith("Point") else "Car"
    place = task.agent.pos
    if mode == "orbit":
        ahead = np.arctan2(place[1], place[0]) + 0.4
        target = 1.6 * np.array([np.cos(ahead), np.sin(ahead)])
    elif mode in ("goal", "push_box"):
        target = getattr(task, mode).pos
    else:
        places = np.array(getattr(task, mode + "s").pos)
        target = places[np.argmin(np.linalg.norm(places[:, :2] - place[:2], axis=1))]
    return steer(task, robot, target) + rng.normal(0, 0.002, 2)


def before(task, kind: str) -> dict:
    """The full state before a step."""
    body, data = task.model.body("agent"), task.data
    last = {
        "Goal": lambda: (task.last_dist_goal, 0.0),
        "Push": lambda: (task.last_dist_box, task.last_box_goal),
        "Circle": lambda: (0.0, 0.0),
        "Button": lambda: (task.last_dist_goal, 0.0),
    }[kind]()
    places = lambda group: np.array(getattr(task, group).pos) if hasattr(task, group) else np.zeros((0, 3))  # noqa: E731
    goal = np.array(task.goal.pos) if hasattr(task, "goal") else np.zeros(3)
    row = dict(qpos=data.qpos, qvel=data.qvel, warm=data.qacc_warmstart, agent_xy0=body.pos, agent_rot0=body.quat)
    row |= dict(goal=goal, hazards=places("hazards"), pillar=places("pillars"), last_a=last[0], last_b=last[1])
    if kind == "Button":
        row |= pressed(task)
    return {key: np.array(value, np.float64) for key, value in row.items()}


def pressed(task) -> dict:
    """What Button has besides: its buttons, the one to press, the timer, and where gremlins started (x, y, yaw)."""
    buttons = np.array(task.buttons.pos)[:, :2]
    starts = []
    for number in range(task.gremlins.num if hasattr(task, "gremlins") else 0):
        body = task.model.body(f"gremlin{number}obj")
        starts.append([*body.pos[:2], 2 * np.arctan2(body.quat[3], body.quat[0])])
    wanted, timer = task.buttons.goal_button, task.buttons.timer
    extra = dict(buttons=buttons, wanted=wanted, timer=timer, gremlins=np.reshape(starts, (-1, 3)))
    return extra | {"clock": task.data.time}


def record(name: str) -> dict[str, np.ndarray]:
    import safety_gymnasium

    kind = next(kind for kind in MODES if kind in name)
    env = safety_gymnasium.make(f"Safety{name}-v0")
    task, rng, rows = env.unwrapped.task, np.random.default_rng(0), []
    modes = [m for m in MODES[kind] if m in ("random", "small", "orbit", "push_box", "goal") or hasattr(task, m + "s")]
    for episode in range(EPISODES):
        env.reset(seed=episode)
        mode = modes[episode % len(modes)]
        for t in range(STEPS):
            action = np.clip(choose(task, name, mode, rng), -1, 1)
            row = before(task, kind) | {"action": action}
            obs, reward, cost, terminated, _, info = env.step(action)
            row |= after(task, kind, (obs, reward, cost, terminated), info)
            if t % KEPT == 0 or row["goal_met"] or (kind == "Button" and cost and t % 3 == 0):
                rows.append(row | {"mode": mode, "episode": episode, "t": t})
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def things(task) -> list:
    """Everything that a robot can be thrown at: (what it is, its number)."""
    groups = ("hazards", "vases", "pillars", "buttons", "gremlins")
    found = [(group, number) for group in groups if hasattr(task, group) for number in range(getattr(task, group).num)]
    if hasattr(task, "sigwalls"):
        found += [("walls", number) for number in range(task.sigwalls.num)]
    found += [("push_box", 0)] * hasattr(task, "push_box") + [("goal", 0)] * hasattr(task, "goal")
    return found


def place_of(task, thing) -> np.ndarray:
    group, number = thing
    if group == "walls":
        return 1.3 * np.array([(1, 0), (-1, 0), (0, 1), (0, -1)][number])
    places = np.atleast_2d(getattr(task, group).pos)
    return places[number][:2]


def throw(task, thing, side: int, rng: np.random.Generator) -> None:
    """Put the robot near a thing, as far from all others as can be, with a speed towards it.

    Its front, left, back or right goes first. What does not roll is thrown upwards, too. For a goal that a box must
    reach, the box is thrown.
    """
    import mujoco

    target, data = place_of(task, thing), task.data
    angles = rng.uniform(0, 2 * np.pi, 30)
    around = target + FAR * np.stack([np.cos(angles), np.sin(angles)], 1)
    others = np.array([place_of(task, other) for other in things(task) if other != thing and other[0] != "hazards"])
    clear = np.min(np.linalg.norm(around[:, None] - others[None], axis=-1), 1) if len(others) else np.zeros(30)
    start = around[np.argmax(clear)]
    box = thing[0] == "goal" and hasattr(task, "push_box")
    joint = data.joint("push_box" if box else task.model.joint(0).name)
    joint.qpos[:2] = start
    joint.qvel[:] = 0
    joint.qvel[:2] = SPEED * (target - start) / FAR
    half = np.arctan2(*(target - start)[::-1]) / 2 - side * np.pi / 4
    joint.qpos[3:] = np.cos(half), 0, 0, np.sin(half)
    if not box and (side % 2 or task.agent.__class__.__name__ != "Racecar"):
        joint.qvel[2], joint.qpos[2] = LIFT, task.agent.z_height + 0.05
    mujoco.mj_forward(task.model, data)
    if hasattr(task, "push_box"):
        task.last_dist_box, task.last_box_goal = task.dist_box(), task.dist_box_goal()
    if hasattr(task, "goal"):
        task.last_dist_goal = task.dist_goal()


def touched(task, info: dict, terminated: bool) -> list:
    """What this step is worth keeping for."""
    model, data, place = task.model, task.data, task.agent.pos
    found = [key for key, value in info.items() if key.startswith("cost_") and value]
    found += ["goal"] * bool(info.get("goal_met")) + ["end"] * terminated
    root = model.body("agent").id
    for contact in data.contact[: data.ncon]:
        bodies = [model.geom_bodyid[geom] for geom in (contact.geom1, contact.geom2)]
        ours = [body for body in bodies if model.body_rootid[body] == root]
        found += [model.body(body).name for body in bodies if len(ours) == 1 and body not in (0, ours[0])]
        found += [f"part{body}" for body in ours if len(ours) == 1 and 0 not in bodies]
    if hasattr(task, "hazards"):
        far = np.linalg.norm(np.array(task.hazards.pos)[:, :2] - place[:2], axis=1)
        found += [f"hazard{number}" for number in np.flatnonzero(far < task.hazards.size)]
    walls = [(0, 1), (0, -1), (1, 1), (1, -1)]
    return found + [f"wall{axis}{side}" for axis, side in walls if side * place[axis] > 1.125 and "end" not in found]


def record_thrown(name: str, whole: bool) -> dict[str, np.ndarray]:
    """Steps of a robot that is thrown at everything in turn, or moves by itself."""
    import safety_gymnasium

    kind = next(kind for kind in MODES if kind in name)
    env = safety_gymnasium.make(f"Safety{name.removesuffix(THROWN)}-v0")
    task, rng, rows, seen = env.unwrapped.task, np.random.default_rng(0), [], {}
    bounds, episode, turn = env.action_space.high, 0, 0
    while len(rows) < ROWS:
        env.reset(seed=episode)
        mode, ended, t = LANES[episode % len(LANES)], False, 0
        while not ended and t < STEPS:
            if mode == "thrown" and t % FLIGHT == 0:
                around, which = divmod(turn, len(things(task)))
                throw(task, things(task)[which], around, rng)
                turn += 1
            action = rng.uniform(-1, 1, len(bounds)) * bounds * (0.1 if mode == "small" else 1.0)
            row = before(task, kind) | {"action": action}
            obs, reward, cost, terminated, ended, info = env.step(action)
            ended |= terminated
            row |= after(task, kind, (obs, reward, cost, terminated), info)
            row |= {"mode": mode, "episode": episode, "t": t, "kept": len(rows) % SOME == 0}
            for what in touched(task, info, terminated):
                seen[what] = seen.get(what, 0) + 1
                limit = RARE if what in ("goal", "end") else 2
                row["kept"] |= seen[what] <= limit
            rows.append(row)
            t += 1
        episode += 1
    print(name, len(rows), "rows, touched:", dict(sorted(seen.items())))
    return {key: np.array([row[key] for row in rows if whole or row["kept"]]) for key in rows[0]}


def after(task, kind: str, given: tuple, info: dict) -> dict:
    """What a step gave."""
    obs, reward, cost, terminated = given
    row = {"qpos_next": task.data.qpos.copy(), "qvel_next": task.data.qvel.copy(), "obs": obs, "reward": reward}
    row |= {"cost": cost, "terminated": terminated, "goal_met": info.get("goal_met", False)}
    row |= {"goal_next": np.array(task.goal.pos) if hasattr(task, "goal") else np.zeros(3)}
    row |= {key: float(value) for key, value in info.items() if key.startswith("cost_")}
    if kind == "Button":
        row |= {"wanted_next": task.buttons.goal_button, "timer_next": task.buttons.timer}
        row.setdefault("cost_buttons", 0.0)  # not charged while the timer runs
    return row


def open_loop(steps: int = 100) -> dict[str, np.ndarray]:
    """Whole runs from a reset under fixed actions, robots alone on the floor."""
    import safety_gymnasium

    times = np.arange(steps)[:, None] / 10.0
    actions = {
        "CarCircle0": [0.01 * np.sin(times * [0.7, 1.1] + phase) for phase in (0.0, 2.0)],
        # The yaw servo is chaotic unless saturated: even from rest it blows a rounding error of the thrust's direction
        # up to 6e-4 rad within four steps.
        "PointCircle0": [np.stack([0.05 * np.sin(times[:, 0]), np.full(steps, turn)], 1) for turn in (1.0, -1.0)],
    }
    found = {}
    for name, sequences in actions.items():
        env = safety_gymnasium.make(f"Safety{name}-v0")
        task = env.unwrapped.task
        for number, sequence in enumerate(sequences):
            env.reset(seed=number)
            key = f"{name}.{number}"
            body = task.model.body("agent")
            found[f"{key}.start"] = np.concatenate([body.pos[:2], body.quat[[0, 3]]])
            found[f"{key}.first"], found[f"{key}.action"], path = task.data.qpos.copy(), sequence, []
            for action in sequence:
                env.step(action)
                path.append(task.data.qpos.copy())
            found[f"{key}.qpos"] = np.array(path)
    return found


def main() -> None:
    whole = sys.argv[1] == "--all"
    folder, *names = sys.argv[2:] if whole else sys.argv[1:]
    folder = Path(folder)
    for name in names:
        if name == "OpenLoop":
            np.savez_compressed(folder / "OpenLoop.npz", **open_loop())
            continue
        steered = name.startswith(("Point", "Car")) and not name.endswith(THROWN)
        data = record(name) if steered else record_thrown(name, whole)
        np.savez_compressed(folder / f"{name}.npz", **data)
        costs = {key: float(value.mean()) for key, value in data.items() if key.startswith("cost")}
        print(name, len(data["t"]), "rows", costs, "goals", int(data["goal_met"].sum()))


if __name__ == "__main__":
    main()
