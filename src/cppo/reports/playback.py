"""Episodes of saved policies, seen from above: where everything was at each step, for a page to play back.

A *scene* is what the page draws: the visible square, fixed shapes, and moving ones with their tracks. Lengths are in
metres, angles in radians. What is to be seen of an environment is its view's business (``cppo.envs.views``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from cppo import envs
from cppo.envs import history
from cppo.envs.views import Shapes, View
from cppo.runs.run import Policy, Run
from cppo.types import UsageError

DIGITS = 3
EPISODE_SEED = 20_000_003  # far from training seeds; the same for all algorithms, so that layouts agree


def can_replay(env: str) -> bool:
    return env in envs.having("view")


def record(policy: Policy, env: str, episodes: int = 1, seed: int = EPISODE_SEED) -> list[dict[str, Any]]:
    """The first episode of ``episodes`` worlds under ``policy``, actions sampled as in training."""
    view, core = envs.view(env), envs.build(env, episodes, envs.backends(env)[-1])
    advance = jax.jit(core.advance) if core.jittable else core.advance
    state, obs = core.init(jax.random.split(jax.random.PRNGKey(seed), episodes))
    memory = policy.settings.memory if policy.settings.encoder == "gru" else 0
    frames, rewards, costs, ended = [view.look(state)], [], [], []
    for t in range(core.spec.episode_length):
        if t % policy.hold == 0:
            if memory:
                window = history.push(window, obs) if t else history.start(obs, memory)
            action = policy.act(np.asarray(window if memory else obs), deterministic=False, seed=seed + t)
        state, step = advance(state, action)
        frames.append(view.look(state))
        rewards.append(np.asarray(step.reward))
        costs.append(np.asarray(step.cost).sum(-1))
        ended.append(np.asarray(step.terminated | step.truncated))
        obs = step.obs
    over = np.stack(ended)
    return [
        _episode(view, world, frames, np.stack(rewards)[:, world], np.stack(costs)[:, world], over[:, world])
        for world in range(episodes)
    ]


def of_run(folder: Path, seed: int, episodes: int, steps: int, checkpoint: str | None = None) -> list[dict[str, Any]]:
    """Episodes of one seed's policy of a saved run: that of a checkpoint, or of step ``steps``."""
    run = Run(folder, checkpoint=checkpoint)
    if checkpoint is None and run.steps != steps:
        raise UsageError(f"the saved policy is that of step {run.steps:,}, not {steps:,}")
    return record(run.policy(seed), run.plan.env, episodes)


def _episode(
    view: View, world: int, frames: list[Shapes], reward: np.ndarray, cost: np.ndarray, ended: np.ndarray
) -> dict[str, Any]:
    length = int(np.argmax(ended)) + 1 if ended.any() else len(ended)
    # The state after the last step is already the next episode's: the last frame stands in for it.
    kept = [*frames[:length], frames[length - 1]]
    moving, fixed = [], list(view.fixed)
    for name, shape in frames[0].items():
        track = np.stack([frame[name]["at"][world] for frame in kept])
        about = {key: value for key, value in shape.items() if key != "at"}
        if np.all(track == track[0]):
            fixed.append({"name": name, **about, "at": _rounded(track[0])})
        else:
            moving.append({"name": name, **about, "track": _rounded(track)})
    return {
        "view": _square(view, moving),
        "fixed": fixed,
        "moving": moving,
        "reward": _rounded(np.concatenate([[0.0], reward[:length]])),
        "cost": _rounded(np.concatenate([[0.0], cost[:length]])),
    }


def _rounded(values: np.ndarray) -> Any:
    return np.round(np.asarray(values, float), DIGITS).tolist()


def _square(view: View, moving: list[dict[str, Any]]) -> list[float]:
    """A square that holds the scene and the agent's whole path: x and y of its lower left corner, and its side."""
    points = np.array([[-view.reach, -view.reach], [view.reach, view.reach]])
    for shape in moving:
        points = np.concatenate([points, np.asarray(shape["track"])[:, :2]])
    low, high = points.min(0), points.max(0)
    side = float((high - low).max()) * 1.04
    centre = (low + high) / 2
    return [round(float(x), DIGITS) for x in (*(centre - side / 2), side)]
