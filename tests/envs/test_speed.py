"""``cppo bench env``: it measures both sides, asks the peer, and refuses nonsense."""

import sys

import numpy as np
import pytest

from cppo.commands.cli import main
from cppo.envs import speed
from cppo.types import UsageError


def test_the_command_prints_both_rates(capsys):
    main(["bench", "env", "PointCircle1", "--worlds", "2", "--blocks", "1", "--block", "2"])
    said = capsys.readouterr().out
    assert "PointCircle1" in said and "by CPU" in said and "wanted: the least ratio" in said


@pytest.mark.slow
def test_both_sides_are_measured_in_wall_and_cpu_time():
    found = speed.measure("CarCircle1", 2, "threads", blocks=1, block=2)
    assert found.simulated == 1.0
    assert min(found.rate, found.raw, found.ratio, found.cpu_ratio) > 0


def test_a_jitted_environment_has_no_raw_rate():
    found = speed.measure("ProbeBox", 4, "auto", blocks=1, block=2)
    assert found.rate > 0 and found.raw is None and found.ratio is None and found.simulated is None
    assert 0 < found.called < np.inf


def test_the_command_says_where_pure_jax_spends_its_time(capsys):
    main(["bench", "env", "PointCircle", "--blocks", "2", "--block", "50"])
    said = " ".join(capsys.readouterr().out.split())
    assert "PointCircle is pure JAX" in said and "of that time goes into the calls" in said
    assert "wanted:" not in said and "100%" not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["PointGoal9"], "Did you mean"),
        (["PointGoal1", "--worlds", "0"], "worlds is 0"),
        (["PointGoal1", "--actions", "wild"], "uniform, steady"),
        (["PointGoal1", "--backend", "abacus"], "unknown backend"),
    ],
)
def test_usage_errors(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", "env", *words])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_peer_that_cannot_run_is_told_what_it_needs(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        speed.peer_rate(str(tmp_path / "python"), "PointGoal1")
    with pytest.raises(UsageError, match=r"safety-gymnasium 1\.0\.0, which installs on Python 3\.10"):
        speed.peer_rate(sys.executable, "PointGoal1")
