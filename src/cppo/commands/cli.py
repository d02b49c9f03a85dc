"""The command line: ``cppo train | compare | study | report | eval | certify | plot | video | envs | algos | …``."""

from __future__ import annotations

import os
import re
import shlex
import sys
from traceback import format_exception, print_exception
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from cppo.commands import config, words
from cppo.commands.algos import Algos
from cppo.commands.bench import Bench
from cppo.commands.certify import CertifyCommand
from cppo.commands.check import Check
from cppo.commands.compare import Compare
from cppo.commands.envs import Envs
from cppo.commands.eval import Eval
from cppo.commands.export import Export
from cppo.commands.plot import Plot
from cppo.commands.report import ReportCommand
from cppo.commands.study import StudyCommand
from cppo.commands.train import Train
from cppo.commands.tune import Tune
from cppo.commands.video import Video
from cppo.commands.watch import Watch
from cppo.errors import TrainingError, UsageError, blame, own_lines, shown
from cppo.runs.signals import ends_within

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
    "check": Check,
    "envs": Envs,
    "algos": Algos,
    "tune": Tune,
    "export": Export,
    "bench": Bench,
}
# They say what repeats them. A run says it itself, by its config.json; the others only look.
REPEATABLE = ("compare", "study", "tune", "report", "eval", "certify", "plot", "video", "export", "bench")


def parse(argv: list[str]) -> Any:
    """The command that ``argv`` asks for, ready to be called; a ``UsageError`` where it cannot be understood."""
    words.check(argv, COMMANDS)
    typed = words.spelt_out(config.expanded(argv, Train) if argv[0] == "train" else argv)
    with words.in_one_line(typed):
        command = tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="cppo",
            description="Constrained reinforcement learning: train policies whose episodes stay under a cost limit. "
            "cppo --version says which version this is; --debug shows where an error comes from, in full.",
            args=typed,
            config=(tyro.conf.OmitArgPrefixes,),
        )
    if isinstance(command, Train):
        command.typed = argv[1:]
    return command


def main(argv: list[str] | None = None) -> None:
    """Entry point. Usage errors exit with code 2, failed runs with 1, runs that a signal stopped with 128 and its
    number."""
    typed = sys.argv[1:] if argv is None else argv
    debug = "--debug" in typed
    typed, command = [word for word in typed if word != "--debug"], None
    if not debug:  # the compiler's remarks on its own pace would tear the display; what fails raises an exception
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        if typed == ["--version"]:
            from importlib.metadata import version

            print(f"cppo {version('cppo')}")
            return
        command = parse(typed)
        with ends_within():
            command()
        if typed[0] in REPEATABLE and not getattr(command, "json", False):
            print(f"Repeat it with: {shlex.join(['cppo', *typed])}")
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Who read our output has seen enough, as in: cppo watch runs | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as if ended by SIGPIPE
    except Exception as error:
        if debug:
            print_exception(error)
        said = error if isinstance(error, UsageError | TrainingError) else explain(error, command)
        _fail(said, 1 if isinstance(said, TrainingError) else 2)


def explain(error: Exception, command: Any = None) -> Exception:
    """In one line what a person can do about an error that no part of cppo has foreseen."""
    if isinstance(error, OSError) and error.filename:
        return UsageError(f"{error.filename}: {error.strerror}. Choose another file or folder, for example with --out.")
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return UsageError("there is not enough memory; use fewer worlds or smaller batches: --set num_envs=… .")
    if own_lines("".join(format_exception(error))):
        return blame("your code failed", error, "Mend it; --debug shows where cppo called it.")
    typed = (*getattr(command, "__dict__", {}).values(), *getattr(command, "set", ()))
    named = [name for name in typed if _is_path(name)]
    if named:
        return blame(f"cppo cannot work with {', '.join(named)}", error, "--debug shows where it failed.")
    advice = "If what you typed is right, this is a defect of cppo: please report it with what --debug shows."
    return blame("something unforeseen", error, advice, TrainingError)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and re.search(r"(^|=)[\w.]+:[A-Za-z_]", value) is not None


def _fail(error: Exception, code: int) -> None:
    console = Console(stderr=True)
    console.print(Text.assemble(("cppo:", "bold red"), f" {shown(str(error))}"), soft_wrap=True)
    for note in getattr(error, "__notes__", ()):
        console.print(Text(shown(note, kept="\n\t")), soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
