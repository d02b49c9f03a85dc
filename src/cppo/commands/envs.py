"""``cppo envs``: what there is to train on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from cppo.types import EnvSpec

console = Console()


WIDE = 72  # columns from which on the backends fit beside names that can be typed


@dataclass
class Envs:
    """List the environments with their spaces, cost limits and backends."""

    def __call__(self) -> None:
        from cppo.envs.registry import TABLE

        wide = console.width >= WIDE
        table = Table(title="Environments", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for heading in ("name", "obs", "actions", "steps"):
            table.add_column(heading, no_wrap=True)
        table.add_column("cost limits")
        if wide:
            table.add_column("backends", no_wrap=True)
        family = ""
        for name, row in sorted(TABLE.items(), key=lambda item: item[1].family):
            if row.family != family:
                family = row.family
                table.add_row(f"[bold]{family}[/]")
            table.add_row(name, *_about(row.spec), *([", ".join(row.backends)] if wide else []))
        console.print(table)
        if not wide:
            console.print("Backends: cppo envs in a wider window.")


def _about(spec: EnvSpec) -> list[str]:
    from cppo.types import Box, Discrete

    size = spec.action.size if isinstance(spec.action, Box) else ""
    size = spec.action.n if isinstance(spec.action, Discrete) else size
    actions = f"{type(spec.action).__name__}({size})"
    limits = dict(zip(spec.cost_names, spec.cost_limits, strict=True))
    words = ", ".join(f"{limit:g}" if len(limits) == 1 else f"{name} {limit:g}" for name, limit in limits.items())
    return ["×".join(map(str, spec.obs_shape)), actions, str(spec.episode_length), words]
