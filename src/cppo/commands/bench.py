"""``cppo bench``: how fast environments step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from cppo.envs.speed import Speed


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
        from cppo.envs.registry import TABLE

        wanted = {name: row.wanted for name, row in TABLE.items() if row.wanted is not None}
        names = [envs.named(self.name)] if self.name else list(wanted)
        for name in names:
            envs.backends(name)  # refuses unknown names before anything is measured
        title = f"{self.worlds} worlds, {self.actions} actions, {self.blocks} blocks of {self.block} steps"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
        for heading in ("environment", "steps/s", "raw", "ratio", "by CPU", "wanted", "in MuJoCo", "peer"):
            table.add_column(heading, justify="left" if heading == "environment" else "right", no_wrap=True)
        speeds: dict[str, Speed] = {}
        for name in names:
            speeds[name] = found = speed.measure(name, self.worlds, self.backend, self.actions, self.blocks, self.block)
            peer_name = TABLE[name].peer if name in TABLE else None
            peer = speed.peer_rate(self.peer, peer_name) if self.peer and peer_name else None
            table.add_row(
                name,
                f"{found.rate:,.0f}",
                _number(found.raw, ",.0f"),
                _number(found.ratio, ".2f"),
                _number(found.cpu_ratio, ".2f"),
                _number(wanted.get(name) if found.ratio else None, ".2f"),
                _number(found.simulated, ".0%"),
                _number(peer, ",.0f"),
            )
        console = Console()
        console.print(table)
        for words in _meanings(speeds, self.peer is not None):
            console.print(words, highlight=False)


def _meanings(speeds: dict[str, Speed], peer: bool) -> list[str]:
    """What the columns that say something here mean."""
    found = ["steps/s: environment steps a second, all worlds together, without a policy."]
    if any(speed.raw is not None for speed in speeds.values()):
        found += [
            "raw: the bare model on the same cores. ratio: steps/s to raw. by CPU: the same in CPU time, for a shared "
            "machine. in MuJoCo: share of the worlds that MuJoCo had to step.",
            "wanted: the least ratio that this project asks of its own environment on idle cores; nothing depends on "
            "it (docs/environments.md).",
        ]
    for name, speed in speeds.items():
        if speed.called is not None:
            lost = max(0.0, 1 - speed.called / speed.rate)
            found.append(
                f"{name} is pure JAX: no MuJoCo, and nothing to compare it with. steps/s is inside one compiled "
                "program, as training steps it. Called step by step from Python it makes "
                f"{speed.called:,.0f}: {lost:.0%} of that time goes into the calls."
            )
    return found + (["peer: safety-gymnasium in one process, steps per second of CPU time."] if peer else [])


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
