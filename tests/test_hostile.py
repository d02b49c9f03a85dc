"""Folders of strangers (``hostile.py``) in every command: none of their code runs, and nothing changes outside."""

import os
import shutil
import subprocess
import sys

import hostile
import kept
import pytest
from hostile import Hostile, link

import cppo
from cppo.commands.cli import main
from cppo.types import UsageError

CASES = {case.name: case for case in hostile.folders()}
STUDY = 'name = "old"\nenvs = ["ProbeState"]\nalgos = ["cpo"]\nseeds = 1\nsteps = 160\n'
STUDY += "settings = { batch_size = 40, num_envs = 4, min_episodes = 1 }\n"
FEW = ["--episodes", "2"]
SMALL = ["--env", "ProbeTwo", "--steps", "40", "--seeds", "1", "--set", "batch_size=40", "num_envs=4", "hidden=[4, 4]"]
COMMANDS = {
    "plot": ["plot", "."],
    "watch": ["watch", ".", "--once"],
    "report": ["report", ".", *FEW],
    "report --measure": ["report", ".", "--measure", "--no-page"],
    "eval": ["eval", ".", *FEW],
    "certify": ["certify", ".", *FEW],
    "video": ["video", ".", "--out", "video.gif"],
    "export onnx": ["export", "."],
    "export stablehlo": ["export", ".", "--format", "stablehlo"],
    "export hub": ["export", ".", "--format", "hub"],
    "study --list": ["study", "../mine.toml", "--out", ".", "--list"],
    "study": ["study", "../mine.toml", "--out", "."],
    "check": ["check", "."],
    "resume": ["train", "--resume", ".", "--steps", "320", "--logger", "csv"],
    "check --repair": ["check", ".", "--repair"],
    "config": ["train", "--config", ".", "--steps", "160", "--out", "again"],
    "init-from": ["train", "--init-from", ".", *SMALL, "--out", "fresh"],
    "resume elsewhere": ["train", "--resume", ".", "--checkpoint", "../../outside/run/checkpoints/checkpoint-00000004"],
}
QUICK = ("watch", "check", "eval", "certify", "video", "study --list", "resume", "check --repair")
QUICK = (*QUICK, "resume elsewhere", "config")


@pytest.fixture
def attempt(tmp_path, monkeypatch, capsys):
    """Run commands on a hostile folder, from within it; the errors that they end with, by command."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])  # as the installed command has it

    def run(case, names=tuple(COMMANDS)):
        place = tmp_path / "case"
        shutil.rmtree(place, ignore_errors=True)
        given = hostile.make(case, place)
        (place / "mine.toml").write_text(STUDY)
        before, said = hostile.seen(place), {}
        monkeypatch.chdir(given)
        for name in names:
            capsys.readouterr()
            try:
                main(COMMANDS[name])
            except SystemExit:
                said[name] = capsys.readouterr().err
            except Exception as error:  # of a damaged folder; here only what it does to others counts
                said[name] = f"{type(error).__name__}: {error}"
            assert not (place / "executed").exists(), (case.name, name, os.listdir(place / "executed"))
            after = hostile.seen(place)
            changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
            assert not changed, (case.name, name, changed)
        return said

    return run


def test_there_are_many():
    assert len(CASES) >= 200


NAMED = [
    "algo canary:ROW of stopped",
    "encoder canary:ROW of replay",
    "encoder canary:ROW of gymnasium",
    "make canary:World",
    "make canary:World-v0",
    "cost canary:World",
    "python ./program",
    "python {given}/program for a known environment",
    "env canary:World of finished, not said how",
    "everything at once",
]


@pytest.mark.parametrize("name", NAMED)
def test_what_only_a_file_names_is_not_run(name, attempt):
    said = attempt(CASES[name], QUICK)
    for command in ("eval", "certify", "resume", "config"):
        if "not said how" not in name:
            assert "add --trust" in said[command] and said[command].count("\n") == 1, said[command]
            assert "canary" in said[command] or "program" in said[command]  # what would run
    assert "study --list" not in said


def test_a_module_of_the_folder_stands_in_for_no_library(attempt):
    said = attempt(CASES["shadowed library"], ["eval", "config"])
    assert "CartPole-v1" in said["config"]  # the library's own was made


def test_what_needs_no_code_works_without(attempt):
    assert attempt(CASES["everything at once"], ["plot", "watch", "report"]) == {}
    run = cppo.load(".")
    assert run.plan.cost_limits == {"cost": 5.0} and len(run.metrics()) and run.summary["steps"] == 80
    with pytest.raises(UsageError, match=r"'canary:ROW'.*'canary:E'.*'canary:W'.*'canary:c'.*program'.*trust=True"):
        run.act([0.0, 0.0])


@pytest.mark.parametrize("name", ["algo canary:ROW of stopped", "make canary:World", "python {given}/program"])
def test_what_the_user_vouches_for_is_run(name, attempt, tmp_path, monkeypatch):
    """So the marks of the tests above would have been seen. Modules in the run's folder are not its code, even then."""
    attempt(CASES[name], [])
    if "canary" in name:
        with pytest.raises(SystemExit):
            main(["eval", ".", "--trust", *FEW])
        assert not (tmp_path / "case" / "executed").exists()
        shutil.copy("canary.py", "../canary.py")
        monkeypatch.chdir("..")
    with pytest.raises(SystemExit):
        main(["eval", "../given" if "program" in name else "given", "--trust", *FEW])
    assert os.listdir(tmp_path / "case" / "executed") == ["canary" if "canary" in name else "program"]
    sys.modules.pop("canary", None)


def test_no_file_is_written_through_a_link(attempt):
    """All links in one folder, but for those in place of files that are read."""
    read = ("summary.json", "error.json", "measured.json", "results.json", "repaired.json", ".owner")
    read += ("checkpoints/checkpoint-00000005.safetensors", "checkpoints/checkpoint-00000007.safetensors")

    def change(given, outside):
        for case in hostile.links():
            if case.base == "finished" and " to a file" in case.name and case.name.split(" to")[0] not in read:
                case.change(given, outside)

    commands = ["plot", "report", "export onnx", "export stablehlo", "export hub", "resume"]
    assert attempt(Hostile("all links", "finished", change), commands) == {}


def test_comparisons_and_searches_go_into_no_link(attempt, monkeypatch):
    how = ["--env", "ProbeState", "--steps", "40", "--seeds", "1", "--out", "."]
    monkeypatch.setitem(COMMANDS, "compare", ["compare", *how, "--algos", "cpo"])
    monkeypatch.setitem(
        COMMANDS, "tune", ["tune", *how, "--algo", "cpo", "--set-space", "kl=0.01:0.1", "--trials", "1"]
    )
    for command, name in (("compare", "cpo"), ("tune", "trial-0000"), ("tune", "study.journal")):
        said = attempt(Hostile(name, "finished", link(name, "run")), [command])
        assert f"{name} is a link" in said[command], said


@pytest.mark.parametrize("folder", ["tensorboard", "checkpoints", "report", "hub", "metrics.jsonl"])
def test_no_folder_of_a_run_is_a_link(folder, attempt):
    commands = {"report": "report", "hub": "export hub"}
    command = commands.get(folder, "resume")
    to = "run/metrics.jsonl" if folder == "metrics.jsonl" else "run"
    said = attempt(Hostile(folder, "stopped", link(folder, to)), [command])
    assert ("is a link" in said.get(command, "")) == (folder != "metrics.jsonl")  # that one is made anew, and goes on


OUTWARD = [
    "study id ../../outside/run",
    "study id {outside}/run",
    "study variant ../../../outside/new",
    "study env /../../outside/new",
    "env ../../../outside/new",
    "seed ../../../outside/new",
    "segment names",
    "study's runs to a folder",
    "study's report to a folder",
]


@pytest.mark.parametrize("name", OUTWARD)
def test_no_name_leads_out_of_its_folder(name, attempt):
    said = attempt(CASES[name], ["report", "study --list", "resume elsewhere"])
    refused = name.startswith(("study id", "study's report", "env", "seed"))
    assert "resume elsewhere" in said and ("report" in said) == refused, said


def test_a_library_is_not_looked_for_where_one_works(tmp_path):
    """As the installed command does it, in a folder with modules of the libraries' names, and a style for figures."""
    given = hostile.make(CASES["shadowed library"], tmp_path)
    command = (
        "import sys; sys.path[:] = [p for p in sys.path if p]; from cppo.commands.cli import main; main(sys.argv[1:])"
    )
    for words in (["plot", "."], ["eval", ".", *FEW]):
        done = subprocess.run([sys.executable, "-c", command, *words], cwd=given, capture_output=True, text=True)
        assert not (tmp_path / "executed").exists(), words
    assert "info has no x" in done.stderr  # the environment itself was made, from the library


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_no_repository_starts_a_program(attempt, tmp_path, monkeypatch):
    monkeypatch.setitem(COMMANDS, "report there", ["report", ".", "--out", "page", "--no-page"])
    said = attempt(Hostile("git", "finished", hostile.checkout), ["report there"])
    assert "nobody can make again" in said["report there"]
    subprocess.run(["git", "check-ignore", "-q", "page"], check=False)
    assert os.listdir(tmp_path / "case" / "executed") == ["program"]  # so it would have been seen


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_no_folder_runs_code_or_writes_outside(part, attempt, monkeypatch):
    """A study is trained in studies' folders alone; elsewhere it would be the same each time. So would most figures."""
    kept.keep(monkeypatch)
    if part:
        kept.draw_nothing(monkeypatch)
    for case in list(CASES.values())[part::8]:
        attempt(case, [command for command in COMMANDS if command != "study" or case.base == "study"])
