"""The loop: collect, update, log, save; for one run and for many, stopped and gone on with at any moment.

A *plan* is what was asked, a *run* what is on disk, a *group* runs that train together; a single run is a group of one.
All members of a group are saved at the same iterations. After a kill between two of those saves the group starts from
the newest checkpoint that all of them have (``start``), so that its result is that of an undisturbed group, bit for
bit. A finished run is never taken back to an earlier checkpoint, and a run that another process is training is left to
it. ``training`` puts this loop into the hands of who trains a single run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import jax

from cppo import envs
from cppo.errors import TrainingError, Unsaved
from cppo.runs import timing
from cppo.runs.collect import Abandoned
from cppo.runs.group import Group
from cppo.runs.lock import claim
from cppo.runs.member import Member
from cppo.runs.options import Options
from cppo.runs.run import is_finished, record_failure
from cppo.runs.session import Iteration, Session
from cppo.runs.start import Planned, by_start, restore

Stop = Callable[[], bool]


def iterations(
    members: Sequence[Member], start: str | None, options: Options, stop: Stop, prefix: str = ""
) -> Generator[Iteration, None, Ended]:
    """Collect, update, log, save: from the checkpoint called ``start`` (None: from nothing) until the end or ``stop``.

    Whoever closes this before, in whatever way, finds the last complete iteration saved.
    """
    use_compilation_cache()
    last = members[0].plan.iterations
    group = Group([member.plan for member in members], lambda: stop() or options.late())
    with ExitStack() as stack:
        stack.callback(envs.close, group.env)
        state, done, before = restore(group, members, start, options.show)
        session = stack.enter_context(Session(group, members, options, done, before))
        session.open(None if start is None else done, prefix)
        for iteration in range(done + 1, last + 1):
            if stop() or session.over():
                break
            try:
                state, metrics = group.iterate(state)  # collect and update
            except Abandoned:
                break
            rows = session.log(iteration, state, metrics)  # evaluates where that is due
            session.keep(iteration, state)  # saves now and then
            yield Iteration(iteration, rows, state, session)
            session.heed(rows)
        spent = session.finish(last)  # saves
    return Ended(session.reached >= last, session.reason, spent)


class Ended(NamedTuple):
    """How a loop came to its end."""

    finished: bool  # all steps are done
    reason: str | None  # why it stopped before, where that was not asked of it from outside
    spent: dict[str, Any]  # where the time went (``timing.split``)


def train_group(members: Sequence[Planned], options: Options, stop: Stop, prefix: str = "") -> None:
    """Train all members to their end, or until ``stop`` says so; then they are saved and go on at the next call.

    A member that fails (NaN in its rewards or its policy) is recorded in its folder; the others go on.
    """
    unsaved: list[Unsaved] = []

    def fail(folder: Path, error: TrainingError) -> None:
        if isinstance(error, Unsaved):  # no failure of the run, which goes on once its folder can be written
            unsaved.append(error)
        else:
            record_failure(folder, error)

    with ExitStack() as stack:
        mine = [member for member in members if stack.enter_context(claim(member[1]))]
        if len(mine) < len(members) and options.show is not False:
            others = len(members) - len(mine)
            print(f"{others} of {len(members)} runs are being trained by another process: left to it.")
        mine = [member for member in mine if not is_finished(*member)]  # another process may just have been at it
        for part, start in by_start(mine):
            if not stop():
                loop = iterations([Member(*one, fail) for one in part], start, options, stop, prefix)
                ended = _to_the_end(loop)
                if options.show is not False:
                    print(timing.sentence(ended.spent))
                if unsaved:
                    raise unsaved[0]


def _to_the_end(loop: Generator[Iteration, None, Ended]) -> Ended:
    with closing(loop):
        try:
            while True:
                next(loop)
        except StopIteration as end:
            return end.value


def use_compilation_cache() -> None:
    """Keep compiled programs between processes, so that a second run or a resume starts at once."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = base if base.is_absolute() else Path.home() / ".cache"  # never where one works: it holds programs
        jax.config.update("jax_compilation_cache_dir", str(base / "cppo" / "xla"))
