"""A long run's metrics are read from a compact copy, which says the same as the lines."""

import json

import long_run
import numpy as np
import pandas as pd
import pytest

from cppo.reports.series import thinned
from cppo.runs import compact, record
from cppo.runs.metrics import METRICS, RunWriter, framed, read_metrics
from cppo.runs.sealed import Damaged


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Few lines that count as many."""
    monkeypatch.setattr(compact, "WORTH", 0)
    monkeypatch.setattr(compact, "CHUNK", 7)
    with RunWriter(tmp_path, tensorboard=False) as writer:
        for iteration in range(1, 11):
            common = {
                "iteration": iteration,
                "steps": 2**33 * iteration,
                "mode": "waiting" if iteration < 3 else "normal",
            }
            values = {"return": 0.1 * iteration, "cost": None if iteration < 3 else 0.5, "big": 1e300, "never": None}
            late = {"late": 0.25} if iteration > 8 else {}
            writer.write([{**common, "seed": seed, **values, "count": iteration, **late} for seed in range(2)])
    return tmp_path


def lines(run):
    return framed([line.row for line in record.rows(run / METRICS)])


def same(found, wanted):
    found = found.assign(mode=found["mode"].astype(str))
    pd.testing.assert_frame_equal(found, wanted.assign(mode=wanted["mode"].astype(str)), check_dtype=False)


def test_the_copy_says_what_the_lines_say(run, monkeypatch):
    wanted = lines(run)
    same(read_metrics(run), wanted)
    assert (run / compact.COPY).is_file()
    monkeypatch.setattr(compact, "_columns", lambda rows: pytest.fail("the lines were read again"))
    same(read_metrics(run), wanted)


def test_numbers_lose_nothing(run):
    found = read_metrics(run)
    assert found["return"].dtype == np.float64 and found["cost"].dtype == np.float32
    assert found["steps"].dtype == np.int64 and found["big"].iloc[0] == 1e300


@pytest.mark.parametrize("how", ["longer", "shorter", "changed", "copy damaged", "copy of another"])
def test_a_copy_of_other_lines_is_not_used(run, how):
    read_metrics(run)
    path, copy = run / METRICS, run / compact.COPY
    whole = path.read_bytes()
    if how == "longer":
        with RunWriter(run, resume_iteration=10, tensorboard=False) as writer:
            writer.write([{"iteration": 11, "steps": 11, "seed": seed, "mode": "normal"} for seed in range(2)])
    elif how == "shorter":
        path.write_bytes(b"".join(line + b"\n" for line in whole.split(b"\n")[:-3]))
    elif how == "changed":
        path.write_bytes(whole.replace(b'"count": 5', b'"count": 6', 1))
        with pytest.raises(Damaged):
            read_metrics(run)
        return
    elif how == "copy damaged":
        copy.write_bytes(copy.read_bytes()[:-5])
    else:
        content = json.loads(whole.split(b"\n")[0])
        copy.write_text(json.dumps(content))
    same(read_metrics(run), lines(run))


def test_a_folder_that_cannot_be_written_is_read(run, monkeypatch):
    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(compact.files, "write_atomically", refuse)
    same(read_metrics(run), lines(run))
    assert not (run / compact.COPY).exists()


def test_long_runs_are_drawn_thinned(run):
    frame = lines(run)
    assert thinned(frame, 10) is frame and thinned(frame.iloc[:0], 10).empty
    assert thinned(frame, 4)["iteration"].unique().tolist() == [3, 6, 9, 10]


@pytest.mark.slow
def test_a_million_lines_are_read_in_ten_seconds_and_500_megabytes(tmp_path):
    for command, (seconds, megabytes) in long_run.table(long_run.make(tmp_path / "run", 1_000_000)).items():
        assert seconds < 10 and megabytes < 500, (command, seconds, megabytes)
