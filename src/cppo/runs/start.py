"""Where training starts: from nothing, or from the newest checkpoint that all who train together have.

Environments whose episodes cannot be saved begin new ones; everything else goes on exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cppo import files
from cppo.errors import UsageError
from cppo.runs import checkpoint
from cppo.runs.checkpoint import checkpoints_of
from cppo.runs.group import Group, GroupState
from cppo.runs.member import Member
from cppo.runs.plan import CONFIG, Plan
from cppo.runs.run import checkpoint_file, finished_steps, saved_iterations

Planned = tuple[Plan, Path]  # with the folder of its run


def named_start(folder: Path, name: str | None) -> str | None:
    if name == "best":
        raise UsageError(f"the best policy is no state to go on from; start from it: --init-from {folder}.")
    return newest_start(folder) if name in (None, "last") else checkpoint_file(folder, name).name


def newest_start(folder: Path) -> str | None:
    """The checkpoint to go on from; None in a folder where a start was cut short, so that the run begins anew."""
    saved = saved_iterations(folder)
    return checkpoint.name_of(saved[-1]) if saved else None


def restore(
    group: Group, members: Sequence[Member], start: str | None, show: bool | None
) -> tuple[GroupState, int, float]:
    """The state to go on from, its iteration, and the seconds that training has taken by then."""
    if start is None:
        fresh = group.split(group.start())
        return group.join([member.begin(own) for member, own in zip(members, fresh, strict=True)]), 0, 0.0
    first = files.inside(checkpoints_of(members[0].folder), start)
    done = int(checkpoint.load(first)[1]["iteration"])
    resumable = group.env.resumable
    if not resumable and show is not False:
        backend = members[0].plan.backend
        print(f"The state of {backend} cannot be saved: episodes start afresh, everything else goes on.")
    fresh = group.split(group.start(restart=0 if resumable else done))
    loaded = [member.load(own, start) for member, own in zip(members, fresh, strict=True)]
    states = [
        own if resumable else own._replace(host_env=new.host_env, worlds=new.worlds._replace(window=own.worlds.window))
        for (own, _), new in zip(loaded, fresh, strict=True)
    ]
    return group.join(states), done, max(seconds for _, seconds in loaded)


def by_start(members: Sequence[Planned]) -> list[tuple[list[Planned], str | None]]:
    """The members with the checkpoint to start from: all together where a kill separated them by one save only."""
    saved = [saved_iterations(folder) or [0] for _, folder in members]
    together = _common_start(members, saved) if members else None
    apart: dict[int, list[Planned]] = {}
    for member, found in zip(members, saved, strict=True):
        apart.setdefault(found[-1] if together is None else together, []).append(member)
    return [(part, checkpoint.name_of(done) if done else None) for done, part in sorted(apart.items())]


def _common_start(members: Sequence[Planned], saved: Sequence[list[int]]) -> int | None:
    """The newest checkpoint that all have, if those that are ahead of it are so by the save that a kill cut short."""
    common = set.intersection(*(set(found[-2:]) for found in saved))
    if not common:
        return None
    start = max(common)
    ahead = {found[-1] for found in saved if found[-1] > start}
    begun = all((folder / CONFIG).is_file() for _, folder in members)
    undone = any(finished_steps(folder) > start * plan.settings.batch_size for plan, folder in members)
    return start if not ahead or (len(ahead) == 1 and begun and not undone) else None
