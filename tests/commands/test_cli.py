"""The command line end to end, as a person types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cppo.commands import cli
from cppo.commands import eval as eval_command
from cppo.commands.cli import main
from cppo.commands.words import _repeat_set
from cppo.types import UsageError

OLD = Path(__file__).parents[1] / "data" / "old"


def cppo(*words, code=0):
    done = subprocess.run([sys.executable, "-m", "cppo", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_train_eval_plot(tmp_path):
    folder = tmp_path / "run"
    out, _ = cppo(
        "train", "--algo", "ppo_lag", "--env", "ProbeBox", "--seeds", 2, "--steps", 1200, "--out", folder,
        "--set", "clip=0.1", "kl=0.03",
    )  # fmt: skip
    assert "cppo plot" in out
    assert "\x1b" not in out  # plain lines where the output is no terminal
    config = json.loads((folder / "config.json").read_text())
    assert (config["settings"]["clip"], config["settings"]["kl"]) == (0.1, 0.03)
    out, _ = cppo("eval", folder, "--episodes", 10, "--json")
    assert {row["actions"] for row in json.loads(out)["policies"]} == {"deterministic", "sampled"}
    cppo("plot", folder)
    assert (folder / "curves.png").stat().st_size > 10_000
    assert (folder / "curves-diagnostics.png").stat().st_size > 10_000
    out, _ = cppo("train", "--resume", folder, "--steps", 2000)
    assert json.loads((folder / "summary.json").read_text())["steps"] == 2000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "--algo", "nothing"), "unknown algorithm"),
        (("train", "--env", "Nowhere"), "unknown environment"),
        (("train", "--set", "colour=red"), "unknown setting"),
        (("train", "--cost-limit", "-1"), "at least 0"),
        (("train", "--resume", "no/such/run"), "is not a run"),
        (("eval", "no/such/run"), "is not a run"),
        (("plot", "no/such/run"), "is not a run"),
        (("algos", "nothing"), "unknown algorithm"),
    ],
)
def test_one_clear_message_and_exit_code_2(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("command", ["train", "compare", "eval", "plot", "envs", "algos", "video", "bench"])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "usage: cppo" in capsys.readouterr().out


def test_tables(capsys):
    main(["algos"])
    main(["algos", "cppo"])
    main(["envs"])
    said = capsys.readouterr().out
    assert "PointCircle" in said
    assert "Trust region" in said


def test_set_takes_several_values():
    assert _repeat_set(["train", "--set", "a=1", "b=2", "--seeds", "2"]) == [
        "train",
        "--set",
        "a=1",
        "--set",
        "b=2",
        "--seeds",
        "2",
    ]
    assert _repeat_set(["--set", "a", "--x"]) == ["--set", "a", "--x"]


@pytest.mark.parametrize("text", ["pip install 'cppo[ray]'", "no run [/x] here", "a trailing \\", "env :smile: [red]"])
def test_errors_are_printed_as_they_are(text, capsys, monkeypatch):
    def fail(argv):
        raise UsageError(text)

    monkeypatch.setattr(cli, "parse", fail)
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"cppo: {text}\n"


def test_names_with_brackets_are_printed_as_they_are(capsys, monkeypatch):
    found = {"algo": "ppo", "env": "module[/x]:Name", "cost_limits": {"cost[left]": 1.0}}
    number = {"mean": 0.5, "half_width": 0.1}
    cost = number | {"worst_tenth": 0.9, "over": 0.0}
    row = {"seed": 0, "actions": "sampled", "return": number, "cost": {"cost[left]": cost}, "feasible": True}
    monkeypatch.setattr("cppo.policies.evaluate.evaluate", lambda *_, **__: found | {"policies": [row]})
    monkeypatch.setattr(eval_command, "console", cli.Console(width=200))
    main(["eval", str(OLD / "finished")])
    out = capsys.readouterr().out
    assert "ppo on module[/x]:Name" in out and "cost[left] (limit 1)" in out
