"""The commands as a person types them."""

import pytest

from cppo.commands.cli import main
from cppo.commands.words import _local_ray
from cppo.study import execute
from cppo.study.definition import Part, Study

TOML = 'title = "Two"\nenvs = ["ProbeBox"]\nalgos = ["ppo", "ppo_lag"]\nseeds = 2\nsteps = 400\n'


@pytest.mark.parametrize("command", ["study", "report", "certify"])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "Example: cppo" in " ".join(capsys.readouterr().out.split())


def test_list_runs_nothing(tmp_path, capsys):
    (tmp_path / "two.toml").write_text(TOML)
    main(["study", str(tmp_path / "two.toml"), "--list", "--out", str(tmp_path / "out"), "--algos", "ppo"])
    out = capsys.readouterr().out
    assert "0 of 2 runs finished" in out and "ppo_lag" not in out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("study", "papers"), "unknown study 'papers'"),
        (("study", "nothing.toml"), "there is no study nothing.toml"),
        (("study", "paper", "--only", "PointGoal9"), "has no environment 'PointGoal9'"),
        (("study", "paper", "--stop-after", "soon", "--out", "/dev/null/x"), "--stop-after 'soon'"),
        (("study", "paper", "--seeds", "0"), "seeds is 0"),
        (("study", "paper", "--lanes", "-1", "--out", "/dev/null/x"), "--lanes is -1; it must be at least 0"),
        (("report", "no/such/folder"), "holds no study"),
        (("certify", "no/such/run"), "is not a run"),
    ],
)
def test_one_clear_message_and_exit_code_2(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_ray_alone_is_local():
    assert _local_ray(["study", "x", "--ray"]) == ["study", "x", "--ray", "local"]
    assert _local_ray(["study", "--ray", "--list"]) == ["study", "--ray", "local", "--list"]
    assert _local_ray(["study", "--ray", "auto"]) == ["study", "--ray", "auto"]


def test_only_runs_that_failed_are_to_be_tried_again(tmp_path, capsys, monkeypatch):
    wrong = {"wrong [/x]": {"nonsense": 1}}
    parts = [Part(envs=["ProbeBox"], algos=["ppo"], seeds=1), Part(envs=["ProbeBox"], seeds=1, variants=wrong)]
    tried, refused = Study("mixed", parts).runs()
    (tmp_path / "two.toml").write_text(TOML)

    def said(*failed):
        monkeypatch.setattr(execute, "execute", lambda *_: execute.Progress([], [], list(failed)))
        with pytest.raises(SystemExit) as stop:
            main(["study", str(tmp_path / "two.toml"), "--out", str(tmp_path / "out")])
        assert stop.value.code == 1
        return capsys.readouterr()

    out, err = said((refused, "unknown setting"))
    assert "cannot run: cppo on ProbeBox, wrong [/x], seed 0: unknown setting" in out
    assert "1 of 1 runs cannot run as they are" in err and "--retry" not in err
    out, err = said((refused, "unknown setting"), (tried, "NaN"))
    assert "failed: ppo on ProbeBox, seed 0: NaN" in out
    assert "1 of 2 runs failed; try them again with --retry. 1 of 2 runs cannot run" in err
