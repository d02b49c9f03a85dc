"""Record single steps of safety-gymnasium 1.0.0's Velocity tasks for the parity tests (tests/data/*Velocity.npz).

    python3.10 scripts/record_velocity.py tests/data HalfCheetahVelocity HumanoidVelocity
    python3.10 scripts/record_velocity.py --means 200 HopperVelocity

Run it with an interpreter that has safety-gymnasium (``scripts/make_safety_gymnasium.sh``). Each row holds the whole
state before a step and what the step gave, named as in ``cppo.envs.velocity.recordings``; ``first_*`` are states and
observations of resets, ``model_*`` numbers of the compiled model. Of 1,000 rows every twelfth is written, and the
first twenty that end an episode or cost something (``--all FOLDER ...``: every row). ``--means`` plays whole episodes
under uniformly random actions and under a fixed random linear policy, and prints means of return, cost and length with
their standard errors.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

os.environ.setdefault("MUJOCO_GL", "disabled")

MODES = ("random", "small", "held", "pushed", "beyond")
ROWS, KEPT, EXTRA = 1000, 12, 20
MODEL = (
    "body_mass",
    "body_inertia",
    "body_ipos",
    "body_parentid",
    "jnt_type",
    "jnt_pos",
    "jnt_axis",
    "jnt_range",
    "jnt_limited",
    "jnt_stiffness",
    "jnt_solref",
    "jnt_solimp",
    "dof_damping",
    "dof_armature",
    "dof_frictionloss",
    "geom_type",
    "geom_size",
    "geom_pos",
    "geom_friction",
    "geom_condim",
    "geom_solref",
    "geom_solimp",
    "actuator_gear",
    "actuator_ctrlrange",
    "qpos0",
    "qpos_spring",
)


def make(name: str):
    import safety_gymnasium

    return safety_gymnasium.make(f"Safety{name}-v1")


def place(core, name: str) -> np.ndarray:
    """What the task measures its velocity by, xy in m, as the last step left it."""
    if name.startswith("Ant"):
        return core.data.body("torso").xpos[:2].copy()
    if name.startswith("Humanoid"):
        mass = core.model.body_mass[:, None]
        return (np.sum(mass * core.data.xipos, 0) / np.sum(mass))[:2]
    return core.data.qpos[:2].copy()


def choose(mode: str, rng: np.random.Generator, bounds: np.ndarray, last: np.ndarray, t: int) -> np.ndarray:
    action = rng.uniform(-1, 1, len(bounds)) * bounds
    if mode == "held" and t % 10:
        return last
    return {"small": 0.2, "beyond": 2.0}.get(mode, 1.0) * action


def push(core, rng: np.random.Generator) -> None:
    """Give the robot a random speed forwards, so that some steps are faster than the threshold."""
    qvel = core.data.qvel.copy()
    qvel[0] = rng.uniform(0.5, 1.5) * core._velocity_threshold
    core.set_state(core.data.qpos.copy(), qvel)


def record(name: str) -> dict[str, np.ndarray]:
    env = make(name)
    core, rng = env.unwrapped, np.random.default_rng(0)
    bounds = core.model.actuator_ctrlrange[:, 1]
    rows, first, episode = [], [], 0
    while len(rows) < ROWS:
        obs, _ = env.reset(seed=episode)
        mode, action = MODES[episode % len(MODES)], 0 * bounds
        start = {"qpos": core.data.qpos, "qvel": core.data.qvel, "warm": core.data.qacc_warmstart, "obs": obs}
        first.append({key: value.copy() for key, value in start.items()})
        for t in range(100):
            if mode == "pushed" and t % 10 == 0:
                push(core, rng)
            action = choose(mode, rng, bounds, action, t)
            row = {"qpos": core.data.qpos, "qvel": core.data.qvel, "warm": core.data.qacc_warmstart}
            row = {key: value.copy() for key, value in row.items()} | {"place": place(core, name), "action": action}
            obs, reward, cost, terminated, _, _ = env.step(action)
            row |= {"qpos_next": core.data.qpos.copy(), "qvel_next": core.data.qvel.copy(), "obs": obs}
            row |= {"place_next": place(core, name), "reward": reward, "cost": cost, "terminated": terminated}
            rows.append(row | {"mode": mode, "episode": episode, "t": t, "ncon": core.data.ncon})
            if terminated:
                break
        episode += 1
    found = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    found |= {f"first_{key}": np.array([start[key] for start in first[:20]]) for key in first[0]}
    found |= {f"model_{key}": np.array(getattr(core.model, key)) for key in MODEL}
    return found | {"model_timestep": np.array(core.model.opt.timestep), "model_frames": np.array(core.frame_skip)}


def thinned(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    rows = len(data["t"])
    keep = np.arange(rows) % KEPT == 0
    for rare in (data["cost"] > 0, data["terminated"]):
        keep[np.flatnonzero(rare)[:EXTRA]] = True
    return {key: value if key.startswith(("first", "model")) else value[keep] for key, value in data.items()}


def means(name: str, episodes: int) -> None:
    """Free episodes; ``cppo.envs`` under the same policies is compared with what this prints."""
    env = make(name)
    bounds = env.unwrapped.model.actuator_ctrlrange[:, 1]
    weights = np.random.default_rng(7).standard_normal((len(bounds), env.observation_space.shape[0]))
    for policy in ("uniform", "linear"):
        rng, totals = np.random.default_rng(1), []
        for episode in range(episodes):
            obs, _ = env.reset(seed=1000 + episode)
            total, ended = np.zeros(3), False
            while not ended:
                noise = rng.uniform(-1, 1, len(bounds))
                action = noise if policy == "uniform" else 0.7 * np.tanh(weights @ obs) + 0.3 * noise
                obs, reward, cost, terminated, truncated, _ = env.step(action * bounds)
                total += (reward, cost, 1)
                ended = terminated or truncated
            totals.append(total)
        mean, error = np.mean(totals, 0), np.std(totals, 0, ddof=1) / np.sqrt(episodes)
        words = zip(("return", "cost", "length"), mean, error)  # noqa: B905 (Python 3.8 in some interpreters)
        print(name, policy, *(f"{what} {value:.4f} +- {spread:.4f}" for what, value, spread in words), flush=True)


def main() -> None:
    if sys.argv[1] == "--means":
        for name in sys.argv[3:]:
            means(name, int(sys.argv[2]))
        return
    whole = sys.argv[1] == "--all"
    folder, *names = sys.argv[2:] if whole else sys.argv[1:]
    for name in names:
        data = record(name)
        kept = data if whole else thinned(data)
        np.savez_compressed(Path(folder) / f"{name}.npz", **kept)
        counts = {key: int(kept[key].sum()) for key in ("cost", "terminated")}
        print(name, len(data["t"]), "rows,", len(kept["t"]), "written,", counts, "contacts", int(kept["ncon"].max()))


if __name__ == "__main__":
    main()
