"""Whose policies a command uses, and that its first line says how far they are."""

import json
import shutil
from pathlib import Path

import pytest

import cppo
from cppo.commands.cli import main
from cppo.runs import checkpoint
from cppo.runs.run import BEST
from cppo.types import UsageError

OLD = Path(__file__).parents[1] / "data" / "old"


@pytest.fixture
def run(tmp_path):
    """Three of six iterations of 40 steps."""
    return Path(shutil.copytree(OLD / "stopped", tmp_path / "run"))


def names(run):
    return sorted(path.name for path in (run / "checkpoints").glob("checkpoint-*"))


def test_the_stage_of_each_checkpoint(run):
    newest = cppo.load(run)
    assert newest.stage == "Half-trained: policy after 120 of 240 steps."
    assert cppo.load(OLD / "finished").stage == "Trained: policy after 160 of 160 steps."
    earlier = cppo.load(run, checkpoint=names(run)[0])
    assert earlier.steps < newest.steps and f"after {earlier.steps:,} of 240" in earlier.stage
    assert (earlier.act([[0.5]], seed=0) != newest.act([[0.5]], seed=0)).any()


def test_an_untrained_policy_is_called_so(run):
    arrays, meta = checkpoint.load(run / "checkpoints" / names(run)[-1])
    meta.pop("iteration")
    data, _ = checkpoint.encode(arrays, 0, meta)
    (run / "checkpoints" / "first.safetensors").write_bytes(data)
    assert cppo.load(run, checkpoint="first.safetensors").stage == "Untrained: policy after 0 of 240 steps."


def test_best_is_the_policy_that_training_kept(run):
    with pytest.raises(UsageError, match=r"keeps no best policy.*--eval-every"):
        cppo.load(run, checkpoint="best").iteration()
    shutil.copy(run / "checkpoints" / names(run)[0], run / "checkpoints" / BEST)
    best = cppo.load(run, checkpoint="best")
    assert best.steps == cppo.load(run, checkpoint=names(run)[0]).steps
    assert best.stage == f"Best feasible policy after {best.steps:,} of 240 steps."


def test_commands_say_it_first_and_take_the_checkpoint(run, capsys):
    first = names(run)[0]
    words = cppo.load(run, checkpoint=first).stage
    commands = [
        ["plot", str(run)],
        ["eval", str(run), "--episodes", "2"],
        ["certify", str(run), "--episodes", "2"],
        ["export", str(run), "--format", "hub"],
    ]
    for command in commands:
        main([*command, "--checkpoint", first])
        assert capsys.readouterr().out.splitlines()[0] == words, command


def test_json_carries_it_and_stays_json(run, capsys):
    main(["eval", str(run), "--episodes", "2", "--json"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["steps"], found["stage"]) == (120, "Half-trained: policy after 120 of 240 steps.")
    assert found["stage"] in said.err


def test_curves_need_no_good_checkpoint(run, capsys):
    newest = run / "checkpoints" / names(run)[-1]
    newest.write_bytes(newest.read_bytes()[:-50])
    main(["plot", str(run)])
    said = capsys.readouterr().out
    assert "Still good in the same folder" in said and "--checkpoint" in said and (run / "curves.png").is_file()


def test_a_report_says_it_for_all_its_runs(tmp_path, capsys):
    for name in ("a", "b"):
        shutil.copytree(OLD / "finished", tmp_path / name)
    main(["report", str(tmp_path), "--episodes", "0", "--no-page"])
    assert capsys.readouterr().out.splitlines()[0] == "2 runs: Trained: policy after 160 of 160 steps."
