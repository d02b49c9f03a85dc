"""What surrounds the loop of ``engine.iterations``: its clock, its rows, what a person sees, when state is saved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import jax
from rich.console import Console

from cppo.runs import timing
from cppo.runs.display import Display
from cppo.runs.group import Group, GroupState
from cppo.runs.member import Member
from cppo.runs.metrics import Row, read_metrics
from cppo.runs.options import Options
from cppo.runs.run import Policy
from cppo.runs.stopping import Rules
from cppo.types import Metrics, UsageError

LONG = 4.0  # seconds; a batch that takes longer is saved at its end, for a signal may not wait for the next one's


class Iteration:
    """What the loop yields: an iteration that is complete, with its rows, and its policies as long as it is the newest.

    ``rows`` holds one dict for each seed, as in ``metrics.jsonl``.
    """

    def __init__(self, number: int, rows: list[Row], state: GroupState, session: Session):
        self.number, self.rows = number, rows
        self.steps = number * session.members[0].plan.settings.batch_size
        self._state, self._session = state, session

    def policy(self, seed: int | None = None) -> Policy:
        """The policy of ``seed`` (default: the first) as it is now; what is handed out stays as it is."""
        member = self._session.members[0]
        seeds = member.plan.seeds
        if seed is not None and seed not in seeds:
            raise UsageError(f"seed {seed} is not in this run; it has {', '.join(map(str, seeds))}.")
        if not _alive(self._state):
            raise UsageError(f"the policy of iteration {self.number} is gone; ask for it before the next iteration.")
        networks, agents = self._session.group.agents(self._state)[0]
        lane = 0 if seed is None else seeds.index(seed)
        return Policy(networks, member.plan.settings, jax.tree.map(lambda x: x[lane], agents))

    def save(self) -> None:
        """Save now; otherwise that is done every ``checkpoint_seconds`` and at the end."""
        self._session.save()


class Session:
    """The members of a group while they train. However its block ends, the last complete iteration is saved."""

    def __init__(self, group: Group, members: Sequence[Member], options: Options, done: int, before: float):
        self.group, self.members, self._options, self._before = group, members, options, before
        self.began, self.done, self.reached = time.monotonic(), done, done
        self._first = 0.0  # seconds of the first iteration, which compiles
        self._saved = self._ended = self.began
        self._unsaved: GroupState | None = None
        self._labels = _labels(members)
        self._took = 0.0  # the newest iteration, compilation left out
        self._rules = Rules(options.rules, members[0].plan.cost_limits, members[0].plan.eval_every > 0)
        self.reason: str | None = None  # to stop
        self.reached_goal = False
        self._stack = ExitStack()

    def open(self, resumed_at: int | None, prefix: str) -> Session:
        """Take rows until the end of the block; those of resumed runs first go back to their checkpoint."""
        how = self._options
        for member in self.members:
            self._stack.enter_context(member.logging(resumed_at, how.tensorboard, how.loggers))
        self._display = _display(self.members, self._labels, how.show, prefix)
        self._stack.callback(self._stop_showing)
        self._display.__enter__()
        self.group.clock.listens = self._display.doing
        if self._rules and resumed_at:
            self._rules.see(read_metrics(self.members[0].folder).to_dict("records"))
        return self

    def _stop_showing(self) -> None:
        with suppress(OSError):  # of a terminal that is closed
            self._display.__exit__()

    def over(self) -> bool:
        """Whether to stop before the next iteration; ``reason`` then says why."""
        rule = self._rules.met()
        if rule is not None:
            self.reason, self.reached_goal = f"{rule} holds", True
        elif self.reason is None and self._options.late(self._took):
            self.reason = "its time is over"
        return self.reason is not None or all(member.failed for member in self.members)

    def heed(self, rows: list[Row]) -> None:
        """Show the rows to the callback, which may end training."""
        callback = self._options.callback
        if callback is not None and callback(rows):
            self.reason, self.reached_goal = "the callback said so", True

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        with self._stack:
            self.save(last=True)

    @property
    def seconds(self) -> float:
        """That training has taken, those before a resume included."""
        return self._before + time.monotonic() - self.began

    def log(self, iteration: int, state: GroupState, found: Sequence[Metrics]) -> list[Row]:
        """Evaluate where that is due, write the rows of an iteration, and show them."""
        if iteration == self.done + 1:
            self._first = time.monotonic() - self.began
            self.group.clock.restart()
        rows, shown, seconds = [], [], self.seconds
        for index, (member, labels, metrics) in enumerate(zip(self.members, self._labels, found, strict=True)):
            found_here = self._evaluated(index, iteration, state)
            rows += (new := member.write(iteration, metrics, seconds, found_here, self.group.trouble))
            named = dict(zip(member.plan.seeds, labels, strict=True))
            shown += [{**row, "seed": named[row["seed"]]} for row in new]
        self._rules.see(rows)
        with suppress(OSError):  # of a terminal that is closed
            self._display.update(shown, seconds)
        return rows

    def _evaluated(self, index: int, iteration: int, state: GroupState) -> list[Row]:
        if not self.members[index].is_due(iteration):
            return []
        self.group.clock.tell("evaluating")
        with self.group.clock("evaluation"):
            return self.members[index].evaluate(iteration, self.group.agents(state)[index][1])

    def keep(self, iteration: int, state: GroupState) -> None:
        """The iteration is complete: save it if that is due, else at the end at the latest."""
        self.reached, self._unsaved = iteration, state
        now = time.monotonic()
        took, self._ended = now - self._ended, now
        self._took = took if iteration > self.done + 1 else 0.0
        if took >= LONG or now - self._saved >= self._options.checkpoint_seconds:
            self.save()

    def save(self, last: bool = False) -> None:
        """Save what is complete and not saved yet; a batch that failed halfway may have used up the state before.

        A save that fails is tried again later, but for the ``last``.
        """
        if self._unsaved is None or not _alive(self._unsaved):
            return
        for member, own in zip(self.members, self.group.split(self._unsaved), strict=True):
            if (told := member.save(self.reached, own, self.seconds, last)) is not None:
                self._display.message(told)
        self._saved = time.monotonic()
        if not any(member.unsaved for member in self.members):
            self._unsaved = None

    def finish(self, last: int) -> dict[str, Any]:
        """The end of the loop; where steps are done or a goal is reached, summaries are written.

        Returns where the time went.
        """
        self.save(last=True)
        wall, finished = time.monotonic() - self.began, self.reached >= last
        alone = self.group.learners[0] if len(self.members) == 1 and finished else None
        seeds = sum(len(member.plan.seeds) for member in self.members)
        done = timing.Done(self.reached - self.done, seeds * self.members[0].plan.settings.batch_size)
        spent = timing.split(self.group.clock, self._first, wall, done, alone)
        stopped = {"stopped": self.reason} if self.reached_goal and not finished else {}
        for member in self.members if finished or stopped else ():
            member.finish(self.reached, self._before + wall, {"time": spent, **stopped})
        return spent


def _alive(state: GroupState) -> bool:
    """Whether the arrays are there; a compiled iteration takes those of the state that it goes on from."""
    arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    return not any(leaf.is_deleted() for leaf in arrays)


def _labels(members: Sequence[Member]) -> list[list[str]]:
    """What tells seeds apart: their numbers, with several algorithms their names, with variants the folder's end."""
    several = len({member.plan.algo for member in members}) > 1
    names = [f"{member.plan.algo} " if several else "" for member in members]
    labels = [[f"{name}{seed}" for seed in member.plan.seeds] for member, name in zip(members, names, strict=True)]
    flat = [label for own in labels for label in own]
    if len(set(flat)) == len(flat):
        return labels
    ends = [member.folder.name[-4:] for member in members]
    return [[f"{label} {end}" for label in own] for own, end in zip(labels, ends, strict=True)]


def _display(members: Sequence[Member], labels: Sequence[Sequence[str]], show: bool | None, prefix: str) -> Display:
    first = members[0].plan
    algorithms = ", ".join(dict.fromkeys(member.plan.algo for member in members))
    limits = first.cost_limits if all(member.plan.cost_limits == first.cost_limits for member in members) else {}
    seeds = [label for own in labels for label in own]
    console = Console(quiet=True) if show is False else None
    steps = first.iterations * first.settings.batch_size  # whole batches
    return Display(f"{prefix}{algorithms} on {first.env}", steps, seeds, limits, show, console)
