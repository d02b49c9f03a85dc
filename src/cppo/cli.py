"""The command line: ``cppo train | compare | study | report | eval | certify | plot | video | envs | algos | …``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cppo.commands.bench import Bench
from cppo.commands.certify import CertifyCommand
from cppo.commands.compare import Compare
from cppo.commands.export import Export
from cppo.commands.gymnasium_options import GymnasiumOptions
from cppo.commands.report import ReportCommand
from cppo.commands.study import StudyCommand
from cppo.commands.tune import Tune
from cppo.commands.video import Video
from cppo.commands.watch import Watch
from cppo.types import TrainingError, UsageError

Positional = tyro.conf.Positional
console = Console()


@dataclass
class Train:
    """Train an algorithm on an environment, or go on with a stopped run.

    Example: cppo train --env PointCircle --seeds 4 --out runs/first --set switch=0.9
    """

    algo: str = "cppo"
    """Name of the algorithm (see: cppo algos), or the import path of a row of your own: module:ROW."""
    env: str = "PointCircle"
    """Name of the environment (see: cppo envs), or a Gymnasium one: Name-v0, module:Name-v0, module:Class."""
    steps: int | None = None
    """Environment steps of each seed (default: the paper's number for the environment)."""
    seeds: int = 4
    """How many seeds to train at once."""
    seed: int = 0
    """The first seed."""
    out: Path | None = None
    """Folder of the new run (default: runs/ENV-ALGO-N)."""
    cost_limit: tuple[float, ...] | None = None
    """Limit on the mean undiscounted cost of an episode, one for each constraint (default: the environment's)."""
    backend: str = "auto"
    """Where the environment runs: auto, jax, threads or warp."""
    gymnasium: Annotated[GymnasiumOptions, tyro.conf.arg(name="")] = field(default_factory=GymnasiumOptions)
    """For Gymnasium environments:"""
    set: Annotated[list[str], tyro.conf.UseAppendAction] = field(default_factory=list)
    """Settings of the algorithm, name=value (see: cppo algos NAME)."""
    resume: Path | None = None
    """Go on with the run in this folder; everything else is taken from it."""
    checkpoint: str | None = None
    """With --resume: the name of the checkpoint to start from (default: the newest)."""
    init_from: Path | None = None
    """Start from the trained policy of this run."""
    overwrite: bool = False
    """Replace a run that stands at --out."""
    checkpoint_seconds: float = 30.0
    """Seconds between two checkpoints (0: after every iteration)."""
    tensorboard: bool = True
    """Write TensorBoard files."""
    logger: str = ""
    """Log elsewhere, too: csv, wandb or csv,wandb."""

    def __call__(self) -> None:
        from cppo.display import summary_table
        from cppo.settings import parse_assignments
        from cppo.timing import sentence
        from cppo.train import resume, train

        options: dict[str, Any] = dict(
            checkpoint_seconds=self.checkpoint_seconds,
            tensorboard=self.tensorboard,
            loggers=[name.strip() for name in self.logger.split(",") if name.strip()],
        )
        if self.resume is not None:
            run = resume(self.resume, steps=self.steps, name=self.checkpoint, **options)
        else:
            run = train(
                self.algo,
                self.gymnasium.environment(self.env),
                steps=self.steps,
                seeds=self.seeds,
                seed=self.seed,
                out=self.out,
                cost_limit=self.cost_limit,
                backend=self.backend,
                settings=parse_assignments(self.set),
                init_from=self.init_from,
                overwrite=self.overwrite,
                **options,
            )
        console.print(summary_table(run.summary, escape(f"{run.plan.algo} on {run.plan.env}")))
        console.print(sentence(run.summary["time"]), highlight=False)
        console.print(f"Saved in {run.folder}. See it with: cppo plot {run.folder}", highlight=False, markup=False)


@dataclass
class Eval:
    """Evaluate the saved policies of a run on fresh episodes, with deterministic and with sampled actions."""

    run: Positional[Path]
    """Folder of the run."""
    episodes: int = 100
    """Episodes for each policy and kind of action."""
    seed: int = 1_000_000
    """Seed of the episodes."""
    json: bool = False
    """Print JSON in place of a table."""
    env: str | None = None
    """Evaluate in this environment instead of the one trained on; observations and actions must agree."""
    num_envs: int = 50
    """Worlds that run side by side."""
    gymnasium: Annotated[GymnasiumOptions, tyro.conf.arg(name="")] = field(default_factory=GymnasiumOptions)
    """For Gymnasium environments:"""

    def __call__(self) -> None:
        from cppo.evaluate import evaluate

        env = None if self.env is None else self.gymnasium.environment(self.env)
        result = evaluate(self.run, self.episodes, self.seed, self.num_envs, env=env)
        if self.json:
            print(json.dumps(result, indent=2))
            return
        title = f"{result['algo']} on {result['env']}: {self.episodes} episodes each, mean ± 95% interval"
        table = Table(title=escape(title))
        for name in ("seed", "actions", "return", *(f"{c} (limit {d:g})" for c, d in result["cost_limits"].items())):
            table.add_column(escape(name), justify="right")
        table.add_column("within limit")
        for row in result["policies"]:
            costs = [_interval(row["cost"][name]) for name in result["cost_limits"]]
            mark = "[green]yes[/]" if row["feasible"] else "[red]no[/]"
            table.add_row(str(row["seed"]), row["actions"], _interval(row["return"]), *costs, mark)
        console.print(table)


def _interval(value: dict[str, float]) -> str:
    return f"{value['mean']:.2f} ± {value['half_width']:.2f}"


@dataclass
class Plot:
    """Draw the learning curves of one or several runs, and for a single run the diagnostics of its updates."""

    runs: Positional[tuple[Path, ...]]
    """Folders of runs on one environment."""
    out: Path | None = None
    """Where to write the curves (default: curves.png in the first run's folder)."""

    def __call__(self) -> None:
        from cppo import plots
        from cppo.run import Run

        if not self.runs:
            raise UsageError("name at least one run, for example: cppo plot runs/demo")
        runs = [Run(folder) for folder in self.runs]
        out = self.out or runs[0].folder / "curves.png"
        named = [
            (f"{run.plan.algo} ({run.folder.name})" if len(runs) > 1 else run.plan.algo, run.metrics()) for run in runs
        ]
        plots.learning_curves(named, runs[0].plan.cost_limits, out)
        console.print(f"Wrote {out}", highlight=False, markup=False)
        if len(runs) == 1:
            second = out.with_name(out.stem + "-diagnostics" + out.suffix)
            plots.diagnostics(named[0][1], runs[0].plan.cost_limits, second, angle_unit="radians")
            console.print(f"Wrote {second}", highlight=False, markup=False)


@dataclass
class Envs:
    """List the environments with their spaces, cost limits and backends."""

    def __call__(self) -> None:
        from cppo import envs
        from cppo.types import Box

        table = Table(title="Environments", box=SIMPLE_HEAD)
        for name in ("name", "observation", "actions", "steps", "cost limits", "backends"):
            table.add_column(name)
        for name in envs.names():
            spec = envs.spec(name)
            actions = f"Box({spec.action.size})" if isinstance(spec.action, Box) else str(spec.action)
            limits = ", ".join(f"{c} ≤ {d:g}" for c, d in zip(spec.cost_names, spec.cost_limits, strict=True))
            shape = "×".join(map(str, spec.obs_shape))
            table.add_row(name, shape, actions, str(spec.episode_length), limits, ", ".join(envs.backends(name)))
        console.print(table)


@dataclass
class Algos:
    """List the algorithms; with a name, its settings with their defaults and meaning."""

    name: Positional[str | None] = None
    """Show the settings of this algorithm."""

    def __call__(self) -> None:
        from cppo import algos
        from cppo.settings import describe

        if self.name is not None:
            table = Table(title=f"Settings of {escape(self.name)} (change with --set name=value)", box=SIMPLE_HEAD)
            for heading in ("name", "default", "meaning"):
                table.add_column(heading)
            for row in describe(algos.get(self.name).settings):
                table.add_row(*map(escape, row))
            console.print(table)
            return
        table = Table(
            title="Algorithms",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            caption="m: number of constraints. Settings of one: cppo algos NAME",
        )
        for heading in ("name", "order", "data", "actions", "m"):
            table.add_column(heading, no_wrap=True)
        table.add_column("treatment of the limit")
        table.add_column("paper")
        for row in algos.TABLE.values():
            actions = "any" if len(row.actions) == 3 else ", ".join(kind.__name__ for kind in row.actions)
            table.add_row(row.name, row.order, row.policy, actions, row.constraints, row.constraint, row.reference)
        console.print(table)


COMMANDS = {
    "train": Train,
    "compare": Compare,
    "study": StudyCommand,
    "report": ReportCommand,
    "eval": Eval,
    "certify": CertifyCommand,
    "plot": Plot,
    "video": Video,
    "watch": Watch,
    "envs": Envs,
    "algos": Algos,
    "tune": Tune,
    "export": Export,
    "bench": Bench,
}


def parse(argv: list[str]) -> Any:
    """The command that ``argv`` asks for, ready to be called; exits with code 2 where it cannot be understood."""
    return tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="cppo",
        description="Constrained reinforcement learning: train policies whose episodes stay under a cost limit.",
        args=_local_ray(_repeat_set(argv)),
        config=(tyro.conf.OmitArgPrefixes,),
    )


def main(argv: list[str] | None = None) -> None:
    """Entry point. Usage errors exit with code 2, failed runs with 1, an interrupted run with 130."""
    try:
        parse(sys.argv[1:] if argv is None else argv)()
    except UsageError as error:
        _fail(error, 2)
    except TrainingError as error:
        _fail(error, 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _repeat_set(arguments: list[str]) -> list[str]:
    """Let ``--set a=1 b=2`` mean ``--set a=1 --set b=2``, and the same for ``--set-space``."""
    result, inside = [], ""
    for word in arguments:
        if word.startswith("--"):
            inside = word if word in ("--set", "--set-space") else ""
            if not inside:
                result.append(word)
        elif inside and "=" in word:
            result += [inside, word]
        else:
            if inside:
                result.append(inside)
            inside = ""
            result.append(word)
    return result


def _local_ray(arguments: list[str]) -> list[str]:
    """Let ``--ray`` without an address mean ``--ray local``."""
    result = list(arguments)
    for index in reversed(range(len(result))):
        if result[index] == "--ray" and (index + 1 == len(result) or result[index + 1].startswith("-")):
            result.insert(index + 1, "local")
    return result


def _fail(error: Exception, code: int) -> None:
    Console(stderr=True).print(Text.assemble(("cppo:", "bold red"), f" {error}"), soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
