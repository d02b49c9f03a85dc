"""The search for settings: what is better, what is given up, what is kept."""

import json

import pytest

from cppo.commands.cli import main
from cppo.study.tune import Range, Trial, parse_space, rank, set_line, tune
from cppo.types import UsageError

FAST = {"value_epochs": 1, "epochs": 2, "batch_size": 100, "num_envs": 10}


def test_spaces():
    space = parse_space(["kl=0.005:0.05:log", "epochs=1:9", "activation=tanh|relu"], "ppo")
    assert space == {
        "kl": Range(0.005, 0.05, True),
        "epochs": Range(1, 9),
        "activation": Range(choices=("tanh", "relu")),
    }
    for wrong in ("kl", "kl=1", "kl=2:1", "kl=0:1:log", "kl=1:2:linear", "colour=1:2", "kl=a:b"):
        with pytest.raises(UsageError, match="set-space"):
            parse_space([wrong], "ppo")
    with pytest.raises(UsageError, match="at least one"):
        parse_space([], "ppo")


def test_feasible_trials_come_first():
    rich = Trial(0, {}, 10.0, 0.5, "complete")
    poor, fair = Trial(1, {}, 1.0, -0.1, "complete"), Trial(2, {}, 2.0, 0.0, "complete")
    lost, failed = Trial(3, {}, None, 0.2, "pruned"), Trial(4, {}, None, None, "fail")
    assert [trial.number for trial in rank([rich, poor, fair, lost, failed])] == [2, 1, 3, 0]
    assert set_line(Trial(0, {"kl": 0.0123456, "epochs": 3}, 1.0, 0.0, "complete")) == "--set kl=0.01235 epochs=3"


def test_a_search_goes_on_and_prunes(tmp_path, capsys):
    """On ProbeBox reward and cost are the mean action, which starts at 5: without training the limit 3 is hopeless."""
    options = dict(steps=1200, seeds=1, settings=FAST, out=tmp_path / "tune", show=True)
    first = tune("ppo", "ProbeBox", ["policy_rate=1e-5:2e-5"], trials=1, **options)
    assert (first[0].state, first[0].earned) == ("pruned", None)
    assert first[0].violation > 0
    tune("ppo", "ProbeBox", ["policy_rate=1e-5:2e-5"], trials=2, **options)
    assert "1 trials are done already" in capsys.readouterr().out
    saved = json.loads((tmp_path / "tune" / "best.json").read_text())
    assert saved["set"].startswith("--set policy_rate=")
    assert {path.name for path in (tmp_path / "tune").glob("trial-*")} == {"trial-0000", "trial-0001"}


def test_the_command_line(tmp_path, capsys):
    words = ["tune", "--algo", "ppo", "--env", "ProbeBox", "--trials", "2", "--steps", "400", "--seeds", "1"]
    words += ["--cost-limit", "9", "--set", *(f"{name}={value}" for name, value in FAST.items())]
    main([*words, "--set-space", "kl=0.005:0.05:log", "clip=0.1:0.3", "--out", str(tmp_path / "tune")])
    said = capsys.readouterr().out
    assert "Best settings: --set kl=" in said
    assert "clip=" in said
