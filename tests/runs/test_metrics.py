"""Metrics on disk, summaries, and what a person sees while training."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import cppo
from cppo.runs.display import Display
from cppo.runs.metrics import RunWriter, read_metrics, summarise
from cppo.runs.outcome import summary_table
from cppo.runs.sealed import write_json
from cppo.runs.timing import Doing
from cppo.types import UsageError


def rows_of(iteration: int, seeds: int = 2, **more) -> list[dict]:
    common = {"iteration": iteration, "steps": 100 * iteration}
    return [{**common, "seed": seed, "return": iteration + 0.5 * seed, "cost": 1.0, **more} for seed in range(seeds)]


def write_run(folder: Path, iterations: range, **options) -> None:
    with RunWriter(folder, **options) as writer:
        for iteration in iterations:
            writer.write(rows_of(iteration))


# --- metrics.jsonl ----------------------------------------------------------------------------------------------------


def test_rows_become_plain_json(tmp_path):
    row = {
        "iteration": np.int64(1),
        "steps": jnp.array(100),
        "seed": 0,
        "return": np.float32(0.5),
        "cost": np.float32("nan"),
        "kl": -math.inf,
        "mode": "recovery",
        "case": np.int32(2),
        "stopped": np.bool_(True),
    }
    with RunWriter(tmp_path, tensorboard=False) as writer:
        writer.write([row])
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "iteration": 1,
        "steps": 100,
        "seed": 0,
        "return": 0.5,
        "cost": None,
        "kl": None,
        "mode": "recovery",
        "case": 2,
        "stopped": True,
        "check": json.loads(text)["check"],
    }


@pytest.mark.parametrize("tail", ["", '{"iteration": 9, "ste', "\0\0\0\0\n\0\0", '{"iteration": 9, "ste\n{"iter'])
def test_a_resumed_run_writes_the_same_file_as_one_never_stopped(tmp_path, tail):
    write_run(tmp_path / "whole", range(1, 9), tensorboard=False)
    write_run(tmp_path / "killed", range(1, 7), tensorboard=False)
    with open(tmp_path / "killed" / "metrics.jsonl", "a") as file:
        file.write(tail)
    write_run(tmp_path / "killed", range(5, 9), resume_iteration=4, tensorboard=False)
    whole, killed = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "killed"))
    assert whole == killed


def test_a_last_row_without_newline_is_kept_whole(tmp_path):
    write_run(tmp_path, range(1, 4), tensorboard=False)
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    RunWriter(tmp_path, resume_iteration=3, tensorboard=False).close()
    assert path.read_bytes() == whole


def test_damage_in_the_middle_is_refused_and_nothing_is_lost(tmp_path):
    write_run(tmp_path, range(1, 4), tensorboard=False)
    path = tmp_path / "metrics.jsonl"
    damaged = path.read_bytes().replace(b'{"iteration": 2', b'{"iterat#on: 2', 1)
    path.write_bytes(damaged)
    with pytest.raises(UsageError, match="line 3"):
        RunWriter(tmp_path, resume_iteration=3, tensorboard=False)
    assert path.read_bytes() == damaged


def test_a_new_run_does_not_overwrite_an_old_one(tmp_path):
    write_run(tmp_path, range(1, 2), tensorboard=False)
    with pytest.raises(UsageError, match="--resume"):
        RunWriter(tmp_path, tensorboard=False)


def test_what_is_written_can_be_read_at_once(tmp_path):
    writer = RunWriter(tmp_path, tensorboard=False)
    writer.write(rows_of(1))
    writer.sync()
    assert len(read_metrics(tmp_path)) == 2
    writer.close()
    writer.close()


def test_read_metrics(tmp_path):
    with RunWriter(tmp_path, tensorboard=False) as writer:
        writer.write(rows_of(1, mode="waiting", kl=math.nan, never=None))
        writer.write(rows_of(2, mode="normal", kl=0.25, never=None, late=3.0))
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 3, "st')
    frame = read_metrics(tmp_path)
    assert list(frame.columns) == ["iteration", "steps", "seed", "return", "cost", "mode", "kl", "never", "late"]
    assert frame["iteration"].tolist() == [1, 1, 2, 2] and frame["mode"].tolist()[1:3] == ["waiting", "normal"]
    assert np.array_equal(frame["kl"], [np.nan, np.nan, 0.25, 0.25], equal_nan=True)
    assert frame["never"].dtype == float
    with pytest.raises(UsageError, match=r"no metrics\.jsonl"):
        read_metrics(tmp_path / "absent")


# --- TensorBoard ------------------------------------------------------------------------------------------------------


def events(folder: Path) -> list:
    """All events under ``folder`` in TensorBoard's order, read from the record format (length, CRC, data, CRC)."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

    found = []
    for path in sorted(folder.iterdir()):
        data, position = path.read_bytes(), 0
        while position < len(data):
            length = int.from_bytes(data[position : position + 8], "little")
            event = Event()
            event.ParseFromString(data[position + 12 : position + 12 + length])
            found.append(event)
            position += 12 + length + 4
    return found


def test_tensorboard_has_each_seed_and_purges_on_resume(tmp_path):
    write_run(tmp_path, range(1, 5))
    write_run(tmp_path, range(3, 5), resume_iteration=2)
    assert sorted(path.name for path in (tmp_path / "tensorboard").iterdir()) == ["seed0", "seed1"]
    found = events(tmp_path / "tensorboard" / "seed1")
    scalars = [(value.tag, event.step, value.simple_value) for event in found for value in event.summary.value]
    assert [scalar for scalar in scalars if scalar[0] == "return"] == [
        ("return", 100 * iteration, iteration + 0.5) for iteration in (1, 2, 3, 4, 3, 4)
    ]
    assert {tag for tag, _, _ in scalars} == {"return", "cost"}
    assert [event.step for event in found if event.HasField("session_log")] == [201]


# --- JSON, versions ---------------------------------------------------------------------------------------------------


def test_write_json_is_readable_and_replaces_at_once(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("old")
    write_json(path, {"limit": np.float64(5.0), "sizes": (64, 64), "bad": math.nan, "out": tmp_path})
    assert json.loads(path.read_text()) == {"limit": 5.0, "sizes": [64, 64], "bad": None, "out": str(tmp_path)}
    assert path.read_text().startswith('{\n  "limit"')
    assert [item.name for item in tmp_path.iterdir()] == ["config.json"]
    with pytest.raises(TypeError):
        write_json(path, {"bad": object()})
    assert json.loads(path.read_text())["limit"] == 5.0


# --- summary ----------------------------------------------------------------------------------------------------------


def frame_of(returns: dict[int, list], **costs: dict[int, list]) -> pd.DataFrame:
    rows = []
    for seed, values in returns.items():
        for index, value in enumerate(values):
            row = {"iteration": index + 1, "steps": 100 * (index + 1), "seed": seed, "return": value}
            rows.append({**row, **{name.replace("__", "."): cost[seed][index] for name, cost in costs.items()}})
    return pd.DataFrame(rows)


def test_summary_of_one_constraint():
    returns = {0: [None, *range(1, 20)], 1: [10.0] * 20}
    costs = {0: [None, *[9.0] * 9, *[1.0] * 9, 2.0], 1: [4.0] * 18 + [5.0, 7.0]}
    summary = summarise(frame_of(returns, cost=costs), {"speed": 5.0}, wall_seconds=50.0, steps=2000)
    first, second = summary["seeds"]
    assert first == {
        "seed": 0,
        "final_return": 18.5,  # the last 2 of 20 iterations
        "final_cost": 1.5,
        "cost_limit": 5.0,
        "feasible": True,
        "violation_rate": 9 / 19,  # the iteration without an episode does not count
        "steps": 2000,
        "wall_seconds": 50.0,
    }
    assert (second["final_cost"], second["feasible"], second["violation_rate"]) == (6.0, False, 1 / 20)
    assert summary["final_return"] == 14.25 and summary["final_cost"] == 3.75 and summary["feasible"] == 0.5
    assert summary["steps"] == 2000 and summary["wall_seconds"] == 50.0 and summary["cost_limit"] == 5.0
    assert set(first) - {"seed"} == set(summary) - {"seeds"}


def test_the_limit_itself_is_feasible():
    summary = summarise(frame_of({0: [1.0]}, cost={0: [5.0]}), {"cost": 5.0}, 1.0, 100)
    assert summary["seeds"][0]["feasible"] is True and summary["violation_rate"] == 0.0


def test_summary_of_two_constraints():
    frame = frame_of({0: [1.0, 1.0], 1: [1.0, 1.0]}, cost__a={0: [9, 1], 1: [1, 1]}, cost__b={0: [1, 1], 1: [1, 4]})
    summary = summarise(frame, {"a": 2.0, "b": 3.0}, 1.0, 200)
    first, second = summary["seeds"]
    assert first["final_cost"] == {"a": 1.0, "b": 1.0} and first["cost_limit"] == {"a": 2.0, "b": 3.0}
    assert (first["feasible"], first["violation_rate"]) == (True, 0.5)
    assert (second["feasible"], second["violation_rate"]) == (False, 0.5)
    assert summary["final_cost"] == {"a": 1.0, "b": 2.5} and summary["feasible"] == 0.5


def test_summary_before_any_episode_ended(tmp_path):
    summary = summarise(frame_of({0: [None, None]}, cost={0: [None, None]}), {"cost": 5.0}, 1.0, 200)
    assert summary["seeds"][0]["final_return"] is None and summary["seeds"][0]["feasible"] is False
    write_json(tmp_path / "summary.json", summary)


# --- display ----------------------------------------------------------------------------------------------------------


def display_rows(step: int, costs: list[float | None], **more) -> list[dict]:
    common = {"iteration": step, "steps": 1000 * step, "return": 12.5, "mode": "normal", "kl": 0.008, "kl_limit": 0.01}
    return [{**common, "seed": seed, "cost": cost, **more} for seed, cost in enumerate(costs)]


def show(interactive: bool, updates: list[list[dict]], limits: dict[str, float], seeds: int = 2, **console) -> str:
    file = io.StringIO()
    terminal = Console(file=file, force_terminal=interactive, width=110, **console)
    with Display("CPPO on PointCircle", 10_000, list(range(seeds)), limits, interactive, terminal) as display:
        for number, rows in enumerate(updates):
            display.update(rows, elapsed=float(number))
        display.message("saved [3] checkpoints")
    return file.getvalue()


def test_plain_lines_have_no_control_characters():
    output = show(False, [display_rows(step, [4.0, 9.0]) for step in range(1, 11)], {"cost": 5.0})
    assert all(character == "\n" or character.isprintable() for character in output) and output.isascii()
    lines = output.splitlines()
    assert "CPPO on PointCircle" in lines[0] and "saved [3] checkpoints" in lines
    last = next(line for line in lines if "100%" in line)
    assert "10,000/10,000" in last and "return 12.5" in last and "cost 6.50/5 over" in last and "0.0080/0.01" in last
    assert "2,000 steps/s" in last  # 1,000 for each of two seeds


def test_plain_lines_are_sparse():
    updates = [[{**row, "steps": 10 * index} for row in display_rows(0, [1.0, 1.0])] for index in range(1001)]
    file = io.StringIO()
    with Display("run", 10_000, [0, 1], {"cost": 5.0}, False, Console(file=file)) as display:
        for index, rows in enumerate(updates):
            display.update(rows, elapsed=0.001 * index)
    assert 20 <= sum("steps/s" in line for line in file.getvalue().splitlines()) <= 23


def test_plain_lines_by_time_when_progress_is_slow():
    file = io.StringIO()
    with Display("run", 10**9, [0], {"cost": 5.0}, False, Console(file=file)) as display:
        for second in range(61):
            display.update(display_rows(second, [1.0]), elapsed=float(second))
    assert file.getvalue().count("return") == 7


class Watch:
    """A clock that is turned by hand."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("cppo.runs.display.time.monotonic", lambda: self.now)


def test_a_log_says_what_the_first_batch_is_at(monkeypatch):
    watch, file = Watch(monkeypatch), io.StringIO()
    with Display("run", 60_000, [0, 1], {"cost": 5.0}, False, Console(file=file)) as display:
        display.doing(Doing("compiling the policy"))
        for steps in range(0, 30_000, 1_000):
            display.doing(Doing("collecting", steps, 30_000))
            watch.now += 1.0
        display.doing(Doing("compiling the update"))
        display.update(display_rows(30, [1.0, 1.0]), elapsed=30.0)
        for steps in range(0, 30_000, 1_000):  # a line each ten seconds was for the first one
            display.doing(Doing("collecting", steps, 30_000))
            watch.now += 0.5
    first, *said = file.getvalue().splitlines()
    assert "60,000 steps, each of 2 seeds" in first
    assert said[:4] == [
        "  0%  compiling the policy",
        "  0%  collecting 10,000 of 30,000, 2,000 steps/s",
        "  0%  collecting 20,000 of 30,000, 2,000 steps/s",
        "  0%  compiling the update",
    ]
    assert len(said) == 5 and "30,000/60,000 steps" in said[4]


def test_a_terminal_says_what_a_long_batch_is_at(monkeypatch):
    watch, console = Watch(monkeypatch), Console(file=io.StringIO(), force_terminal=True, width=80)
    display = Display("cppo on PointGoal1", 60_000, [0, 1, 2, 3], {"cost": 25.0}, True, console)
    seen = []
    for now in (Doing("compiling the policy"), Doing("collecting", 0, 30_000), Doing("collecting", 12_000, 30_000)):
        display.doing(now)
        watch.now += 4.0
        with console.capture() as captured:
            console.print(display._render())
        seen.append(re.sub(r"\x1b\[[\d;]*m", "", captured.get()).splitlines()[0].strip())
    start = "cppo on PointGoal1  4 seeds  "
    said = ("compiling the policy", "collecting 0 of 30,000", "collecting 12,000 of 30,000, 6,000 steps/s")
    assert seen == [start + words for words in said]
    display.update(display_rows(30, [1.0] * 4), elapsed=12.0)
    display.doing(Doing("collecting", 1_000, 30_000))
    with console.capture() as captured:
        console.print(display._render())
    assert "collecting" not in captured.get(), "a short batch does not flicker"


@pytest.mark.parametrize("env", ["ProbeBox", "gymnasium"])
def test_every_backend_says_what_it_is_at(env, tmp_path, capsys):
    """Without a terminal: compiling first, on threads the policy and the update one after the other."""
    sizes = {"batch_size": 40, "num_envs": 2, "hidden": (8,), "min_episodes": 1, "value_epochs": 1, "epochs": 1}
    if env == "gymnasium":
        import sample_envs

        env = cppo.envs.from_gymnasium(sample_envs.LongLine, episode_length=10)
    cppo.train("ppo", env, steps=80, cost_limit=1.0, settings=sizes, out=tmp_path / "run", tensorboard=False)
    said = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  0%")]
    assert said == (
        ["0%  compiling"] if env == "ProbeBox" else ["0%  compiling the policy", "0%  compiling the update"]
    )


def test_the_terminal_shows_cost_against_limit_with_a_mark():
    updates = [display_rows(step, [1.0, 4.8, 9.0], multiplier=0.25) for step in (1, 2)]
    output = show(True, updates, {"cost": 5.0}, seeds=3, no_color=True)
    assert "1.00/5 ✓" in output and "4.80/5 ≈" in output and "9.00/5 ✗" in output
    for word in ("multiplier", "0.250", "normal", "0.0080/0.01", "2,000/10,000", "steps/s", "left"):
        assert word in output, word


def test_marks_are_coloured():
    output = show(True, [display_rows(1, [1.0, 4.8])], {"cost": 5.0}, color_system="standard")
    assert re.search(r"\x1b\[32m *1\.00/5 ✓", output) and re.search(r"\x1b\[33m *4\.80/5 ≈", output)
    assert "\x1b[31m" not in output
    assert "\x1b[31m" in show(True, [display_rows(1, [9.0, 9.0])], {"cost": 5.0}, color_system="standard")


def test_terminals_without_unicode_get_words():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with Display("run", 10_000, [0, 1], {"cost": 5.0}, True, Console(file=file, force_terminal=True)) as display:
        display.update(display_rows(1, [1.0, 9.0]), elapsed=1.0)
    file.seek(0)
    output = file.read()
    assert "1.00/5 ok" in output and "9.00/5 over" in output


def test_many_seeds_stay_compact():
    output = show(True, [display_rows(1, [1.0] * 40)], {"cost": 5.0}, seeds=40)
    final = output[output.rindex("CPPO on") :]
    assert "mean of 40" in final and "32 more" in final and len(final.splitlines()) < 18


def test_rows_without_episodes_or_kl_and_with_two_costs():
    rows = [{"iteration": 1, "steps": 5000, "seed": seed, "return": None, "mode": "waiting"} for seed in range(2)]
    rows = [{**row, "cost.speed": None, "cost.force": 2.0 * row["seed"]} for row in rows]
    for interactive in (True, False):
        output = show(interactive, [rows, rows], {"speed": 1.0, "force": 3.0})
        assert "waiting" in output and "speed" in output and "1.00/3" in output


def test_summary_table(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    returns, costs = {0: [1.0] * 10, 3: [3.0] * 10}, {0: [1.0] * 10, 3: [6.0] * 10}
    summary = summarise(frame_of(returns, cost=costs), {"cost": 5.0}, 10.0, 1000)
    console = Console(file=io.StringIO(), width=100)
    console.print(summary_table(summary, "CPPO on PointCircle"))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    row = {line.split()[0]: line for line in lines if line.split()}
    assert "✓" in row["0"] and "✗" in row["3"] and "6.00" in row["3"] and "100%" in row["3"]
    assert "2.00" in row["mean"] and "3.50" in row["mean"] and "1 of 2" in row["mean"]
