"""``cppo bench``: how fast environments step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


@dataclass
class Bench:
    """Measure environment steps per second, beside the bare model on the same cores and safety-gymnasium.

    Example: cppo bench env CarPush1 --worlds 64 --peer ~/venvs/safety/bin/python
    """

    what: tyro.conf.Positional[Literal["env"]]
    """What to measure: env."""
    name: tyro.conf.Positional[str | None] = None
    """Name of the environment (default: the four of the paper that need MuJoCo)."""
    worlds: int = 64
    """Worlds side by side."""
    backend: str = "auto"
    """Where the environment runs: auto, jax, threads or warp."""
    actions: str = "uniform"
    """uniform (new at each step) or steady (slow changes, like a trained policy's)."""
    peer: str | None = None
    """A Python interpreter that has safety-gymnasium, to measure it too."""
    blocks: int = 15
    """Blocks to measure; figures are medians over them."""
    block: int = 20
    """Steps in a block."""

    def __call__(self) -> None:
        from cppo import envs
        from cppo.envs import speed
        from cppo.envs.tasks.scenes import SCENES

        names = [self.name] if self.name else speed.DEFAULT_NAMES
        for name in names:
            envs.backends(name)  # refuses unknown names before anything is measured
        title = f"{self.worlds} worlds, {self.actions} actions, {self.blocks} blocks of {self.block} steps"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
        for heading in ("environment", "steps/s", "raw", "ratio", "by CPU", "wanted", "in MuJoCo", "peer"):
            table.add_column(heading, justify="left" if heading == "environment" else "right", no_wrap=True)
        for name in names:
            found = speed.measure(name, self.worlds, self.backend, self.actions, self.blocks, self.block)
            peer = speed.peer_rate(self.peer, name) if self.peer and name in SCENES else None
            table.add_row(
                name,
                f"{found.rate:,.0f}",
                _number(found.raw, ",.0f"),
                _number(found.ratio, ".2f"),
                _number(found.cpu_ratio, ".2f"),
                _number(speed.TARGETS.get(name) if found.ratio else None, ".2f"),
                f"{found.simulated:.0%}",
                _number(peer, ",.0f"),
            )
        console = Console()
        console.print(table)
        console.print("raw: the bare model on the same cores; by CPU: the ratio in CPU time, for a shared machine.")
        if self.peer:
            console.print("peer: safety-gymnasium in one process, steps per second of CPU time.")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
