"""Training a single run: ``train`` and ``resume``, and the loop in your hands, ``training`` and ``resuming``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec

from cppo import envs
from cppo.envs import VectorEnv
from cppo.runs.engine import iterations
from cppo.runs.folder import empty, new_folder, refuse_nothing, refuse_run
from cppo.runs.lock import owned
from cppo.runs.member import Member
from cppo.runs.options import Options
from cppo.runs.plan import Plan, load_plan, make_plan
from cppo.runs.run import Run, standing
from cppo.runs.session import Iteration
from cppo.runs.signals import Heeded, ending
from cppo.runs.start import named_start, newest_start

P = ParamSpec("P")


def _takes(model: Callable[P, Any]) -> Callable[[Callable[..., Run]], Callable[P, Run]]:
    """Gives a function the signature of ``model``, so that what both take is written once."""

    def give(function: Callable[..., Run]) -> Callable[P, Run]:
        vars(function)["__signature__"] = inspect.signature(model)
        return function

    return give


class Training:
    """A run while it trains: each step of a ``for`` is an iteration, with its rows and its policies.

    Leave the loop whenever you like: what is complete is saved, and ``cppo.resuming(folder)`` goes on exactly there.
    Where the loop has a name of its own, say when: ``close``, or ``with``. ``finish`` trains to the end.
    """

    def __init__(self, plan: Plan, folder: Path, options: Options, start: Callable[[], str | None]):
        self.plan, self.folder = plan, folder
        self._signals = Heeded()
        self._loop = _alone(plan, folder, start, options, self._signals)  # knows nothing of this: no cycle keeps it

    def __iter__(self) -> Training:
        return self

    def __next__(self) -> Iteration:
        self._signals.busy = True
        try:
            return next(self._loop)
        finally:
            self._signals.busy = False

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Save what is complete, and let go of the run's folder."""
        self._loop.close()

    def finish(self) -> Run:
        """Train to the end and return the saved run."""
        with self:
            for _ in self:
                pass
        return Run(self.folder, plan=self.plan)


def _alone(
    plan: Plan, folder: Path, start: Callable[[], str | None], options: Options, signals: Heeded
) -> Generator[Iteration, None, None]:
    """The loop of a single run, which raises its own error, and what a signal asks for."""

    def fail(folder: Path, error: Exception) -> None:
        raise error

    with owned(folder), signals:
        ended = yield from iterations([Member(plan, folder, fail)], start(), options, signals.asked)
    if not ended.finished and options.show is not False:
        with suppress(OSError):  # of a terminal that is closed
            why = f" ({ended.reason})" if ended.reason else ""
            print(f"Stopped{why} and saved. Go on with: cppo train --resume {folder}")
    if signals.number is not None and not ended.finished:
        raise ending(signals.number)


def training(
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
    eval_every: int = 0,
    eval_episodes: int = 20,
    **options: Any,
) -> Training:
    """The loop of ``train`` in your hands: what it takes, and an iteration at each step of a ``for``.

    >>> import tempfile
    >>> out = tempfile.mkdtemp() + "/run"
    >>> for step in training("cppo", "ProbeBox", steps=800, out=out, show=False):
    ...     print(step.steps, len(step.rows), step.policy().act([1.0]).shape)
    ...     break  # which saves
    400 1 (1,)
    >>> [step.steps for step in resuming(out, show=False)]
    [800]
    """
    how = Options(**options)
    plan = make_plan(
        algo,
        env,
        backend=backend,
        seeds=seeds,
        seed=seed,
        steps=steps,
        cost_limit=cost_limit,
        settings=settings,
        init_from=None if init_from is None else str(init_from),
        eval_every=eval_every,
        eval_episodes=eval_episodes,
    )
    for remark in (envs.remark(env) if isinstance(env, str) else None, plan.remark):
        if remark is not None and how.show is not False:
            print(remark)
    folder = new_folder(plan, out)
    refuse_run(folder, overwrite)
    return Training(plan, folder, how, lambda: empty(folder) if overwrite else None)


def resuming(
    folder: str | Path,
    *,
    steps: int | None = None,
    name: str | None = None,
    env: VectorEnv | None = None,
    trust: bool = False,
    **options: Any,
) -> Training:
    """The loop of ``resume`` in your hands, see ``training``."""
    how, folder = Options(**options), Path(folder)
    refuse_nothing(folder)
    plan = load_plan(folder, trust)
    plan = plan if env is None else plan.with_env(env)
    plan = plan if steps is None else plan.with_steps(steps)
    return Training(plan, folder, how, lambda: named_start(folder, name))


@_takes(training)
def train(*what: Any, **words: Any) -> Run:
    """Train ``algo`` on ``env`` for ``steps`` environment steps of each seed and return the saved run.

    ``env`` is a name, or an environment made by ``cppo.envs.from_gymnasium`` (as many worlds as needed are made anew).
    ``cost_limit`` bounds the mean undiscounted cost of an episode (default: the environment's own limit); ``settings``
    changes any setting of the algorithm by name. Every ``eval_every`` steps (0: never) each policy is evaluated in
    ``eval_episodes`` episodes, and the best feasible one is kept: ``cppo.load(out, checkpoint="best")``. ``options``
    are the fields of ``cppo.Options``.

    >>> import tempfile
    >>> run = train("cppo", "ProbeBox", steps=800, out=tempfile.mkdtemp() + "/run", show=False)
    >>> run.metrics()["steps"].tolist()
    [400, 800]
    """
    return training(*what, **words).finish()


@_takes(resuming)
def resume(*what: Any, **words: Any) -> Run:
    """Go on with a stopped run from its newest checkpoint (or the one called ``name``), exactly as if never stopped.

    ``steps`` extends (or shortens) the run. ``env`` is needed only where the environment was made by a function that
    has no import path; episodes of Gymnasium environments start afresh. ``trust`` as in ``load``; ``options`` are the
    fields of ``cppo.Options``.
    """
    return resuming(*what, **words).finish()


def ensure(plan: Plan, folder: Path, options: Options | None = None) -> Run:
    """The finished run of ``plan`` in ``folder``: trained, gone on with (to more steps, too), or opened."""
    if standing(plan, folder) == "finished":
        return Run(folder, plan=plan)
    return Training(plan, folder, options or Options(), lambda: newest_start(folder)).finish()
