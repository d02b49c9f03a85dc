"""``cppo algos``: what there is to train with."""

from __future__ import annotations

from dataclasses import dataclass

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

console = Console()
WIDE = 72  # columns from which on the papers fit


@dataclass
class Algos:
    """List the algorithms; with a name, its settings with their defaults and meaning."""

    name: tyro.conf.Positional[str | None] = None
    """Show the settings of this algorithm."""

    def __call__(self) -> None:
        from cppo import algos
        from cppo.settings import describe

        if self.name is not None:
            title = f"Settings of {escape(self.name)} (change with --set name=value)"
            table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
            for heading in ("name", "default", "meaning"):
                table.add_column(heading, no_wrap=heading == "name")
            for row in describe(algos.get(self.name).settings):
                table.add_row(*map(escape, row))
            console.print(table)
            return
        wide = console.width >= WIDE
        table = Table(
            title="Algorithms",
            title_justify="left",
            caption_justify="left",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            caption="Settings of one: cppo algos NAME",
        )
        for heading in ("name", "order", "data", "actions"):
            table.add_column(heading, no_wrap=True)
        table.add_column("treatment of the limit", min_width=10)  # of "multiplier"
        if wide:
            table.add_column("paper")
        for row in algos.TABLE.values():
            actions = "any" if len(row.actions) == 3 else ", ".join(kind.__name__ for kind in row.actions)
            paper = [row.reference] if wide else []
            table.add_row(row.name, row.order, row.policy, actions, row.constraint, *paper)
        console.print(table)
