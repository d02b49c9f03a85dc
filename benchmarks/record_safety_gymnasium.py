"""Record single steps of safety-gymnasium 1.0.0 for the parity tests (tests/data/*.npz).

    python3.10 benchmarks/record_safety_gymnasium.py tests/data PointGoal2 CarPush2 PointCircle1
    python3.10 benchmarks/record_safety_gymnasium.py tests/data OpenLoop

Run it with an interpreter that has safety-gymnasium (Python 3.10, mujoco 2.3.3, numpy below 1.24; set
MUJOCO_GL=disabled). Each row holds the whole state before a step and what the step gave, named as in
``cppo.envs.replay``. Robots act at random, gently, or steer at an object, a pillar, a hazard or the goal.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

MODES = {
    "Goal": ("random", "small", "goal", "hazard", "vase"),
    "Push": ("random", "small", "hazard", "pillar", "push_box"),
    "Circle": ("random", "small", "orbit"),
}
EPISODES, STEPS, KEPT = 10, 150, 10  # per name; every KEPT-th step is written


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
    robot = name.split("Goal")[0].split("Push")[0].split("Circle")[0]
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
    }[kind]()
    places = lambda group: np.array(getattr(task, group).pos) if hasattr(task, group) else np.zeros((0, 3))  # noqa: E731
    goal = np.array(task.goal.pos) if hasattr(task, "goal") else np.zeros(3)
    row = dict(qpos=data.qpos, qvel=data.qvel, warm=data.qacc_warmstart, agent_xy0=body.pos, agent_rot0=body.quat)
    row |= dict(goal=goal, hazards=places("hazards"), pillar=places("pillars"), last_a=last[0], last_b=last[1])
    return {key: np.array(value, np.float64) for key, value in row.items()}


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
            obs, reward, cost, _, _, info = env.step(action)
            row |= {"qpos_next": task.data.qpos.copy(), "qvel_next": task.data.qvel.copy(), "obs": obs}
            row |= {"reward": reward, "cost": cost, "goal_met": info.get("goal_met", False)}
            row |= {"goal_next": np.array(task.goal.pos) if hasattr(task, "goal") else np.zeros(3)}
            row |= {key: value for key, value in info.items() if key.startswith("cost_")}
            if t % KEPT == 0 or row["goal_met"]:
                rows.append(row | {"mode": mode, "episode": episode, "t": t})
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


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
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    for name in names:
        if name == "OpenLoop":
            np.savez_compressed(folder / "OpenLoop.npz", **open_loop())
            continue
        data = record(name)
        np.savez_compressed(folder / f"{name}.npz", **data)
        costs = {key: float(value.mean()) for key, value in data.items() if key.startswith("cost")}
        print(name, len(data["t"]), "rows", costs, "goals", int(data["goal_met"].sum()))


if __name__ == "__main__":
    main()
