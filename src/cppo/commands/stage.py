"""The first line of every command that uses a policy: how far its training is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from cppo.runs.run import Run


def tell_stage(run: Run, aside: bool = False, several: bool = False) -> None:
    """Print it; ``aside``, on standard error, where the output is for a program."""
    name = f"{run.folder}: " if several else ""
    Console(stderr=aside).print(f"{name}{run.stage}", highlight=False, markup=False, soft_wrap=True)
