"""The training loop: iterate, log, checkpoint; stop and resume at any moment without losing or changing anything."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from cppo import checkpoint, envs, log, timing
from cppo import loggers as loggers_module
from cppo import plan as plans
from cppo.claim import owned
from cppo.display import Display
from cppo.envs import VectorEnv
from cppo.learner import Learner, TrainState
from cppo.plan import Plan
from cppo.run import Run
from cppo.saving import Saver
from cppo.types import Metrics, TrainingError, UsageError

Callback = Callable[[list[dict[str, Any]]], None]  # sees the rows of each iteration, one for each seed


def train(
    algo: str = "cppo",
    env: str | VectorEnv = "PointCircle",
    *,
    steps: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    out: str | Path | None = None,
    cost_limit: float | tuple[float, ...] | None = None,
    backend: str = "auto",
    settings: Mapping[str, Any] | None = None,
    init_from: str | Path | None = None,
    overwrite: bool = False,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = True,
    loggers: Sequence[str] = (),
    show: bool | None = None,
    callback: Callback | None = None,
) -> Run:
    """Train ``algo`` on ``env`` for ``steps`` environment steps of each seed and return the saved run.

    ``env`` is a name, or an environment made by ``cppo.envs.from_gymnasium`` (as many worlds as needed are made anew).
    ``cost_limit`` bounds the mean undiscounted cost of an episode (default: the environment's own limit); ``settings``
    changes any setting of the algorithm by name. ``loggers`` (csv, wandb) see every row beside ``metrics.jsonl``, and
    so does ``callback``, a function of the rows of an iteration, one dict for each seed.
    ``show``: True for the live display, False for silence, None for the display on a terminal and plain lines
    elsewhere.

    >>> import tempfile
    >>> run = train("cppo", "ProbeBox", steps=800, out=tempfile.mkdtemp() + "/run", show=False)
    >>> run.metrics()["steps"].tolist()
    [400, 800]
    """
    loggers_module.check(loggers)
    plan = plans.make(
        algo,
        env,
        backend=backend,
        seeds=seeds,
        seed=seed,
        steps=steps,
        cost_limit=cost_limit,
        settings=settings,
        init_from=None if init_from is None else str(init_from),
    )
    folder = _new_folder(plan, out, overwrite)
    return begin(plan, folder, checkpoint_seconds, tensorboard, show, callback, loggers)


def begin(
    plan: Plan,
    folder: Path,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = True,
    show: bool | None = None,
    callback: Callback | None = None,
    loggers: Sequence[str] = (),
) -> Run:
    """Train ``plan`` from its first step in an empty ``folder``."""
    use_compilation_cache()
    learner = plan.learner()
    state = learner.start()
    if plan.init_from is not None:
        state = _start_from(state, Path(plan.init_from))
    with owned(folder):
        folder.mkdir(parents=True, exist_ok=True)
        plan.save(folder, log.versions())
        writer = log.RunWriter(folder, tensorboard=tensorboard)
        saver = Saver(checkpoints_of(folder))
        saver.save(0, state, {"wall_seconds": 0.0})
        return _loop(plan, learner, state, folder, writer, saver, 0, 0.0, checkpoint_seconds, show, callback, loggers)


def resume(
    folder: str | Path,
    *,
    steps: int | None = None,
    name: str | None = None,
    env: VectorEnv | None = None,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = True,
    loggers: Sequence[str] = (),
    show: bool | None = None,
    callback: Callback | None = None,
) -> Run:
    """Go on with a stopped run from its newest checkpoint (or the one called ``name``), exactly as if never stopped.

    ``steps`` extends (or shortens) the run. ``env`` is needed only where the environment was made by a function that
    has no import path; episodes of Gymnasium environments start afresh.
    """
    loggers_module.check(loggers)
    folder = Path(folder)
    with owned(folder):
        plan = plans.load(folder)
        plan = plan if env is None else plans.with_env(plan, env)
        if steps is not None and steps != plan.steps:
            plan = plans.with_steps(plan, steps)
            plan.save(folder, log.versions())
        use_compilation_cache()
        learner = plan.learner()
        saver = Saver(checkpoints_of(folder))
        fresh = learner.start()
        state, meta = saver.load(fresh, name)
        if not learner.env.resumable:
            if show is not False:
                print(f"The state of {plan.backend} cannot be saved: episodes start afresh, everything else goes on.")
            fresh = learner.start(restart=int(meta["iteration"]))
            state = state._replace(host_env=fresh.host_env, worlds=fresh.worlds._replace(window=state.worlds.window))
        done = int(meta["iteration"])
        writer = log.RunWriter(folder, resume_iteration=done, tensorboard=tensorboard)
        before = float(meta["wall_seconds"])
        return _loop(
            plan, learner, state, folder, writer, saver, done, before, checkpoint_seconds, show, callback, loggers
        )


def _loop(
    plan: Plan,
    learner: Learner,
    state: TrainState,
    folder: Path,
    writer: log.RunWriter,
    saver: Saver,
    done: int,
    seconds_before: float,
    checkpoint_seconds: float,
    show: bool | None,
    callback: Callback | None,
    loggers: Sequence[str],
) -> Run:
    began = last_saved = time.monotonic()
    title = f"{plan.algo} on {plan.env}"

    def elapsed() -> float:
        return seconds_before + time.monotonic() - began

    def save(iteration: int) -> None:
        refuse_nonfinite(state, iteration)
        writer.sync()
        saver.save(iteration, state, {"wall_seconds": elapsed()})

    console = Console(quiet=True) if show is False else None
    display = Display(title, plan.steps, list(plan.seeds), plan.cost_limits, show, console)
    first = 0.0  # seconds of the first iteration, which compiles
    more = loggers_module.Loggers(loggers, folder, plan)
    with writer, more, display, _closing_env(learner), stop_on_interrupt() as interrupted:
        told_waiting = False
        for iteration in range(done + 1, plan.iterations + 1):
            state, metrics = learner.iterate(state)
            metrics = jax.device_get(metrics)
            if iteration == done + 1:
                first = learner.clock.restart()
            rows = rows_of(plan, learner.batch_size, iteration, metrics, elapsed())
            refuse_nonfinite_signals(plan, metrics, iteration)
            writer.write(rows)
            more.write(rows)
            display.update(rows, elapsed())
            if not told_waiting and any(row["mode"] == "waiting" for row in rows):
                display.message("No episode has ended yet, so the cost is unknown: waiting before the first update.")
                told_waiting = True
            if callback is not None:
                callback(rows)
            last = iteration == plan.iterations
            if last or interrupted.is_set() or time.monotonic() - last_saved >= checkpoint_seconds:
                save(iteration)
                last_saved = time.monotonic()
            if interrupted.is_set() and not last:
                display.message(f"Stopped and saved. Go on with: cppo train --resume {folder}")
                raise KeyboardInterrupt
    summary = log.summarise(log.read_metrics(folder), plan.cost_limits, elapsed(), plan.iterations * learner.batch_size)
    summary["time"] = timing.split(learner.clock, first, time.monotonic() - began, plan.iterations - done, learner)
    log.write_json(folder / "summary.json", summary)
    return Run(folder)


def rows_of(plan: Plan, batch_size: int, iteration: int, metrics: Metrics, seconds: float) -> list[dict[str, Any]]:
    """One flat record for each seed; a quantity with an axis of constraints gets a column for each."""
    names = plan.spec.cost_names
    rows = []
    for lane, seed in enumerate(plan.seeds):
        row: dict[str, Any] = {"iteration": iteration, "steps": iteration * batch_size, "seed": seed}
        values = {name: np.asarray(value)[lane] for name, value in metrics.items()}
        waiting = bool(values.pop("waiting"))
        recovering = values.pop("recovering", np.asarray(False))
        row["mode"] = "waiting" if waiting else "recovery" if np.any(recovering) else "normal"
        for name, value in values.items():
            if value.ndim == 0:
                row[name] = None if waiting and name in ("return", "length") else value.item()
            elif len(names) == 1:
                row[name] = None if waiting else value[0].item()
            else:
                row |= {f"{name}.{cost}": None if waiting else x.item() for cost, x in zip(names, value, strict=True)}
        row["seconds"] = seconds
        rows.append(row)
    return rows


def refuse_nonfinite_signals(plan: Plan, metrics: Metrics, iteration: int) -> None:
    bad = [seed for seed, number in zip(plan.seeds, np.asarray(metrics["nonfinite"]), strict=True) if number]
    if bad:
        raise TrainingError(
            f"{plan.env} returned NaN or infinite rewards, costs or observations in iteration {iteration} "
            f"(seeds {bad}). Everything up to the last checkpoint is saved. If kl or the losses in {log.METRICS} grew "
            "before, the policy diverged: start again with lower learning rates; else mend the environment and resume."
        )


def refuse_nonfinite(state: TrainState, iteration: int) -> None:
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(jax.device_get(state.agent.policy))):
        raise TrainingError(
            f"the policy's parameters became NaN or infinite by iteration {iteration}; the last checkpoint before is "
            "kept. Lower the learning rates (for example --set policy_rate=1e-4 value_rate=3e-4) and start again."
        )


def _new_folder(plan: Plan, out: str | Path | None, overwrite: bool) -> Path:
    folder = Path(out) if out is not None else _unused(Path("runs") / _as_file_name(f"{plan.env}-{plan.algo}"))
    if folder.exists() and any(folder.iterdir()):
        if not (folder / plans.FILE).is_file():
            raise UsageError(f"{folder} exists and is not a run of cppo; choose another --out.")
        if not overwrite:
            raise UsageError(f"{folder} holds a run already. Go on with --resume {folder}, or add --overwrite.")
        with owned(folder):
            shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _as_file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _unused(folder: Path) -> Path:
    number = 1
    while (candidate := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return candidate


def checkpoints_of(folder: Path) -> Path:
    return folder / "checkpoints"


def _start_from(state: TrainState, source: Path) -> TrainState:
    """Policy, normaliser and critics of a trained run in place of fresh ones; lane i takes the source's lane i mod n.

    Each is taken whole or, where it does not fit, not at all; the policy has to fit.
    """
    arrays, _ = checkpoint.load(checkpoint.latest(checkpoints_of(source)))
    fresh = checkpoint.named_arrays(state)
    lanes = next(iter(fresh.values())).shape[0]
    for part in ("agent.policy", "agent.normaliser", "agent.value", "agent.cost_value"):
        names = [name for name in fresh if name.startswith(part)]
        if all(name in arrays and arrays[name].shape[1:] == fresh[name].shape[1:] for name in names):
            fresh |= {name: arrays[name][np.arange(lanes) % arrays[name].shape[0]] for name in names}
        elif part == "agent.policy":
            raise UsageError(f"the policy in {source} does not fit this environment and network; train from scratch.")
    return checkpoint.restore(fresh, state)


@contextmanager
def _closing_env(learner: Learner) -> Iterator[None]:
    try:
        yield
    finally:
        envs.close(learner.env)


@contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a request to stop after the current iteration; the second one stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: Any) -> None:
        if asked.is_set() and callable(before):
            before(number, frame)
        asked.set()

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def use_compilation_cache() -> None:
    """Keep compiled programs between processes, so that a second run or a resume starts at once."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        jax.config.update("jax_compilation_cache_dir", str(base / "cppo" / "xla"))
