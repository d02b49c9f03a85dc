"""A run is one consistent thing: what of it is damaged or edited is noticed, named, and repaired as far as can be."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import damage
import faulty
import pytest

from cppo.commands.cli import main
from cppo.runs import check, engine, member, record, training
from cppo.runs.metrics import METRICS, read_metrics
from cppo.runs.run import read_summary
from cppo.runs.sealed import Damaged, parse, read_json, read_sealed, write_sealed
from cppo.types import UsageError

QUIET = {"show": False, "tensorboard": False, "checkpoint_seconds": 0.0}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(engine, "Group", faulty.Sums)
    monkeypatch.setattr(member, "versions", lambda: {"cppo": "as tested"})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "Group", faulty.Sums)
        patch.setattr(member, "versions", lambda: {"cppo": "as tested"})
        damage.prepare(base := tmp_path_factory.mktemp("damage") / "study")
    return base


@pytest.fixture
def study(prepared, tmp_path):
    """One finished run and one that was stopped at iteration 3 of 5."""
    return Path(shutil.copytree(prepared, tmp_path / "study"))


@pytest.fixture
def run(study):
    return study / "runs" / "stopped"


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def drop(run, *numbers):
    lines = (run / METRICS).read_text().splitlines(keepends=True)
    (run / METRICS).write_text("".join(line for number, line in enumerate(lines, 1) if number not in numbers))


def resumed(run):
    return training.resume(run, **QUIET)


def test_damage_is_noticed_and_mended(tmp_path):
    counts = damage.rounds(tmp_path / "all", flips=45, cuts=15, seed=3)
    assert counts["damages"] == 60 and counts["found by check"] > 40 and "not mended by repair" not in counts


@pytest.mark.slow
def test_two_thousand_flips_and_two_hundred_cuts(tmp_path):
    counts = damage.rounds(tmp_path / "all", flips=2000, cuts=200, seed=1)
    print(counts)
    assert counts["damages"] == 2200 and "not mended by repair" not in counts


def test_edited_settings_are_refused_and_a_variation_is_told(run):
    edit(run / "config.json", '"cost": 3.0', '"cost": 7.0')
    with pytest.raises(UsageError, match=r"config\.json was changed .* --init-from"):
        resumed(run)
    with pytest.raises(UsageError, match="was changed"):
        training.load_plan(run)


@pytest.mark.parametrize(("name", "value"), [("kl", 0.5), ("cost_limit", [7.0])])
def test_settings_are_bound_to_checkpoints(run, name, value):
    """With a seal that fits, as whoever edits on purpose would make it."""
    config = read_json(run / "config.json")
    config["settings"][name] = value
    write_sealed(run / "config.json", config)
    with pytest.raises(UsageError, match=rf"not what the checkpoint was trained with: {name} is .*--init-from"):
        resumed(run)
    assert f"{name} is" in check.check(run).problems[0]
    check.repair(run)
    assert resumed(run).summary["steps"] == 500


def test_an_edited_number_of_steps_is_no_other_run_but_is_noticed(run):
    edit(run / "config.json", '"steps": 500', '"steps": 900')
    with pytest.raises(Damaged):
        resumed(run)


def test_a_run_from_an_earlier_version_has_no_checks_and_goes_on(study, run, prepared):
    config = read_json(run / "config.json")
    (run / "config.json").write_text(json.dumps(config))
    rows = [one.row for one in record.rows(run / METRICS)]
    (run / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    resumed(run)
    lines = (run / METRICS).read_text().splitlines()
    assert ["check" in json.loads(line) for line in lines] == [False] * 3 + [True] * 2
    assert len(read_metrics(run)) == 5 and check.check(run).problems == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda run: drop(run, 2), "line 2 comes after lines that are missing: iterations 2 of seed 0"),
        (lambda run: drop(run, 1, 2), "line 1 comes after lines that are missing: iterations 1 to 2 of seed 0"),
        (lambda run: drop(run, 3), "ends at iteration 2 of seed 0, but a checkpoint is of iteration 3"),
        (lambda run: (run / METRICS).unlink(), "ends at iteration 0|no metrics"),
        (lambda run: edit(run / METRICS, '"iteration": 2', '"iteration": 3'), "line 2 is damaged"),
        (lambda run: edit(run / METRICS, '"return": 1', '"return": 7'), "line 1 is damaged"),
        (
            lambda run: (run / METRICS).write_text((run / METRICS).read_text() * 2),
            "line 4 is out of place: iteration 1 of seed 0 was there before",
        ),
    ],
)
def test_rows_that_are_missing_changed_or_twice_are_named(run, change, words):
    change(run)
    with pytest.raises(UsageError, match=words):
        resumed(run)
    with pytest.raises(UsageError, match=words):
        read_metrics(run)
    assert check.check(run).problems


def test_lost_rows_are_told_of_once(study):
    run = study / "runs" / "finished"  # its oldest checkpoint is of iteration 3
    drop(run, 2)
    said = check.repair(run)
    assert "1 rows are lost for good" in " ".join(said) and (run / "damaged-1" / METRICS).is_file()
    assert check.check(run).problems == [] and read_metrics(run)["iteration"].tolist() == [1, 3, 4, 5]
    assert resumed(run).metrics()["iteration"].tolist() == [1, 3, 4, 5]
    assert check.repair(run) == []


def test_repair_goes_back_to_where_rows_and_checkpoint_agree(run, prepared, study):
    drop(run, 3)
    newest = run / "checkpoints" / "checkpoint-00000003.safetensors"
    said = check.repair(run)
    assert "go on from iteration 2" in said[-1] and not newest.exists()
    assert (run / "damaged-1" / "checkpoints" / newest.name).is_file()
    resumed(run)
    assert faulty.content(run) == faulty.content(study / "runs" / "finished")


def test_a_hole_in_the_rows_is_repaired_without_reading_it(run, study):
    drop(run, 3)
    os.truncate(run / METRICS, 2**40)  # costs nothing to send
    check.repair(run)
    assert (run / "damaged-1" / METRICS).stat().st_size == 2**40
    resumed(run)
    assert faulty.content(run) == faulty.content(study / "runs" / "finished")


def test_rows_that_are_a_link_are_not_repaired(run, tmp_path):
    drop(run, 2)
    (run / METRICS).rename(tmp_path / "rows")
    (run / METRICS).symlink_to(tmp_path / "rows")
    with pytest.raises(UsageError, match="is a link"):
        check.repair(run)
    assert not (run / "damaged-1").exists() and len((tmp_path / "rows").read_text().splitlines()) == 2


def test_a_run_in_use_is_not_repaired(run):
    drop(run, 2)
    with training.owned(run), pytest.raises(UsageError, match="another process"):
        check.repair(run)


def test_the_command_says_what_is_good(study, run, capsys):
    main(["check", str(study)])
    assert capsys.readouterr().out.count(": good, ") == 2
    drop(run, 3)
    with pytest.raises(SystemExit) as end:
        main(["check", str(study)])
    said = capsys.readouterr()
    assert end.value.code == 1 and "good up to iteration 2 (checkpoint-00000002.safetensors)" in said.out
    assert "1 of 2 runs damaged" in said.err and "--repair" in said.err
    main(["check", str(study), "--repair"])
    main(["check", str(study)])
    edit(study / "study.json", '"seed": 1', '"seed": 7')
    with pytest.raises(SystemExit):
        main(["check", str(study)])
    assert "study.json was changed" in capsys.readouterr().out


def test_nothing_to_check(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["check", str(tmp_path)])
    assert "holds no run" in capsys.readouterr().err


BAD = {
    "deep list": "[" * 100_000,
    "deep table": '{"a":' * 100_000,
    "deep and closed": '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
    "number of 5,000 digits": '{"format": ' + "9" * 5000 + "}",
    "number of 400 digits": '{"format": 1, "steps": ' + "9" * 400 + "}",
    "infinite": '{"format": 1, "steps": 1e999}',
    "NaN": '{"format": 1, "steps": NaN}',
    "list": "[1, 2]",
    "nothing": "",
    "no text": "\udcff\udcfe",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
@pytest.mark.parametrize("file", ["config.json", "summary.json", METRICS, "study.json"])
def test_strange_json_is_one_clear_line(study, text, file, capsys):
    run = study / "runs" / "finished"
    (study / file if file == "study.json" else run / file).write_text(text, errors="surrogateescape")
    with pytest.raises(SystemExit) as end:
        main(["check", str(study)])
    assert end.value.code == 1
    main(["watch", str(study), "--once"])
    assert "unforeseen" not in capsys.readouterr().err
    for read in (read_metrics, read_summary, lambda run: damage.folders.entries(study), resumed):
        how, said = damage.attempt(lambda read=read: read(run))
        assert len(str(said)) < 2000 or how == "read"


ENTRIES = [
    ("seeds", None),
    ("steps", "x"),
    ("settings", []),
    ("settings", {}),  # no limit is saved
    ("algo", 3),
    ("env", {}),
    ("gymnasium", []),
    ("init_from", 1),
]


@pytest.mark.parametrize(("name", "value"), ENTRIES)
def test_wrong_entries_are_one_clear_line(run, name, value, capsys):
    write_sealed(run / "config.json", read_json(run / "config.json") | {name: value})
    for read in (training.load_plan, resumed):
        how, said = damage.attempt(lambda read=read: read(run))
        assert how == "refused", said


def test_watch_shows_odd_names_and_damage(tmp_path, run, capsys):
    odd = Path(shutil.copytree(run, tmp_path / "[/x]" / "[bold]"))
    main(["watch", str(odd.parent), "--once"])
    assert "[/x]" in capsys.readouterr().out.replace("\n", "")
    edit(odd / METRICS, '"return": 1', '"return": 7')
    main(["watch", str(odd.parent), "--once"])
    assert "damaged" in capsys.readouterr().out


def test_json_of_the_standard_only():
    assert parse('{"a": [1, 2.5, null, -12]}') == {"a": [1, 2.5, None, -12]}
    for text in ("NaN", "Infinity", "1e999", "1" * 20, "{"):
        with pytest.raises(ValueError):
            parse(text)


def test_a_seal_covers_everything(tmp_path):
    write_sealed(tmp_path / "a", {"x": 1.5, "y": [1]})
    assert read_sealed(tmp_path / "a", "") == {"x": 1.5, "y": [1]}
    whole = (tmp_path / "a").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "a").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with contextlib.suppress(UsageError):
            assert read_sealed(tmp_path / "a", "") == {"x": 1.5, "y": [1]}  # a blank that is another one
