"""The commands as a person types them."""

import pytest

from cppo.cli import _local_ray, main

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
        (("study", "paper", "--budget", "soon", "--out", "/dev/null/x"), "--budget 'soon'"),
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
