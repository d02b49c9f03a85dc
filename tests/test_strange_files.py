"""Things that are no files in a run's folder, files without an end, and texts that are more than texts.

Every command must end soon, in one line where it cannot go on, and leave what lies outside alone.
"""

import contextlib
import csv
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import damage
import faulty
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from cppo.commands.cli import main
from cppo.errors import UsageError, shown
from cppo.reports import records, report, style
from cppo.runs import checkpoint, compact, engine, hub, lock, member, sealed
from cppo.runs.checkpoint import CheckpointError
from cppo.runs.loggers import CSVLogger
from cppo.runs.metrics import METRICS, RunWriter, read_metrics
from cppo.runs.plan import load_plan
from cppo.runs.sealed import Damaged, write_sealed
from cppo.study import tune

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="makes pipes, devices and holes in files")
ESCAPE = "\x1b]0;pwned\x07\x1b[2J"
NEWEST = "checkpoints/checkpoint-00000003.safetensors"
READ = ("config.json", "versions.json", "summary.json", METRICS, ".metrics.safetensors", "error.json", "repaired.json")
READ = (*READ, NEWEST, "checkpoints/best.safetensors", ".owner")
COMMANDS = {
    "watch": ["watch", ".", "--once"],
    "check": ["check", "."],
    "plot": ["plot", ".", "--out", "curves.png"],
    "report": ["report", ".", "--episodes", "0"],
    "resume": ["train", "--resume", ".", "--no-tensorboard"],
    "repair": ["check", ".", "--repair"],
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "Group", faulty.Sums)
        patch.setattr(member, "versions", lambda: {"cppo": "as tested"})
        damage.prepare(base := tmp_path_factory.mktemp("strange") / "study")
    return base / "runs" / "stopped"


@pytest.fixture
def run(prepared, tmp_path, monkeypatch):
    """A stopped run, where the test works."""
    monkeypatch.setattr(engine, "Group", faulty.Sums)
    monkeypatch.setattr(member, "versions", lambda: {"cppo": "as tested"})
    monkeypatch.setattr(lock, "BEAT", 0.05)
    place = Path(shutil.copytree(prepared, tmp_path / "run"))
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def ends(capfd):
    """What commands print and say at their end, in a line; one that takes long is interrupted, and fails."""

    def late(*_):
        raise AssertionError("it does not end")

    def go(names):
        said = {}
        for name in names:
            before = signal.signal(signal.SIGALRM, late)
            signal.alarm(30)
            capfd.readouterr()
            with contextlib.suppress(SystemExit):
                main(COMMANDS[name])
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
            out, error = capfd.readouterr()
            assert "unforeseen" not in error and "\x1b" not in out + error, (name, error)
            assert error.count("cppo: ") <= 1, (name, error)
            said[name] = out + error
        return said

    return go


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def hole(path):
    """A terabyte that costs nothing to send."""
    with open(path, "wb") as file:
        file.truncate(2**40)


def folder(path):
    path.mkdir()


@pytest.mark.parametrize("kind", [pipe, device, hole, folder])
@pytest.mark.parametrize("name", READ)
def test_what_is_no_file_of_ours_keeps_nobody_waiting(run, ends, name, kind):
    (run / name).unlink(missing_ok=True)
    kind(run / name)
    quick = ("watch", "check", "resume", "repair")
    said = ends(quick if name not in (METRICS, ".metrics.safetensors") else COMMANDS)
    if name in (NEWEST, "versions.json", "error.json", "repaired.json") and (name, kind) not in LOOKED_OVER:
        assert "damaged" in said["check"], said


# What is there and no file is as good as nothing where a file may be missing.
LOOKED_OVER = [(name, kind) for name in ("error.json", "repaired.json") for kind in (pipe, device, folder)]


def test_a_checkpoint_is_as_long_as_it_says_before_it_is_read(run):
    """A sound header before a hole, and one that announces the hole."""
    data = (run / NEWEST).read_bytes()
    for announced in (False, True):
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        if announced:
            header["hole"] = {"dtype": "U8", "shape": [2**42], "data_offsets": [0, 2**42]}
        text = json.dumps(header).encode()
        with open(run / NEWEST, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + 2**42)
        with pytest.raises(CheckpointError, match="do not fit into this machine's memory" if announced else "damaged"):
            checkpoint.load(run / NEWEST)


@pytest.mark.parametrize(
    "change",
    [
        {"__metadata__": {"format": "cppo-checkpoint", "version": 1}},
        {"__metadata__": {"format": "cppo-checkpoint", "version": "9" * 5000}},
        {"__metadata__": {"format": "cppo-checkpoint", "version": "1", "meta": []}},
        {"a": {"dtype": "F32", "shape": [10**30], "data_offsets": [0, 24]}},
        {"a": {"dtype": "F32", "shape": [-1, -6], "data_offsets": [0, 24]}},
        {"a": {"dtype": "F32", "shape": [0, 10**18], "data_offsets": [0, 24]}},
        {"a": {"dtype": "F32", "shape": ["6"], "data_offsets": [0, 24]}},
        {"a": {"dtype": "O", "shape": [3], "data_offsets": [0, 24]}},
        {"a": {"dtype": "F64", "shape": [3], "data_offsets": [-24, 0]}},
        {"a": {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}, "b": {"shape": []}},
        {"a": {"dtype": "F64", "shape": [2], "data_offsets": [8, 24]}},
        {"a": 5},
        [],
    ],
)
def test_absurd_headers(tmp_path, change):
    sound = checkpoint.encode({"a": np.arange(3.0)}, 1, {"x": 1})[0]
    header = json.loads(sound[8 : 8 + int.from_bytes(sound[:8], "little")])
    text = json.dumps(header | change if isinstance(change, dict) else change).encode()
    path = tmp_path / "checkpoint-00000001.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + sound[-24:])
    with pytest.raises(CheckpointError, match="cannot use checkpoint"):
        checkpoint.load(path)
    path.write_bytes((2**63).to_bytes(8, "little") + sound[8:])
    with pytest.raises(CheckpointError, match="truncated"):
        checkpoint.load(path)


@pytest.mark.parametrize("name", [".owner", METRICS])
def test_another_name_of_a_file_elsewhere_is_not_written_to(run, ends, tmp_path, name):
    victim = tmp_path / "VICTIM"
    victim.write_text("precious" if name == ".owner" else "")
    (run / name).unlink(missing_ok=True)
    os.link(victim, run / name)
    before = victim.read_bytes()
    said = ends(["resume", "repair"])
    assert victim.read_bytes() == before and ("is a link" in said["resume"]) == (name == ".owner"), said


@pytest.mark.parametrize("name", [".owner", ".metrics.safetensors", "repaired.json", "damaged-1", METRICS, NEWEST])
def test_links_in_place_of_what_is_written_late(run, ends, tmp_path, monkeypatch, name):
    """Also a replay's parts, and where a repair moves things to."""
    monkeypatch.setattr(compact, "WORTH", 0)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "VICTIM").write_text("precious")
    (run / "versions.json").write_text("{")  # so that there is something to repair
    with contextlib.suppress(FileNotFoundError):
        (run / name).unlink()
    (run / name).symlink_to(outside if name == "damaged-1" else outside / "VICTIM")
    for part in (run / "checkpoints").glob("replay-*"):
        part.unlink()
        part.symlink_to(outside / "VICTIM")
    ends(["plot", "resume", "repair", "resume"])
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"VICTIM": "precious"}


def test_rows_that_somebody_made_sound(run):
    """Whoever writes a line can make its check; what it holds must be numbers all the same."""
    lines = (run / METRICS).read_bytes().splitlines(keepends=True)
    row = sealed.row_in(lines[0].rstrip(b"\n"))[0]
    for value in ("=1+1", [1], {"a": 1}, 10**30):
        (run / METRICS).write_bytes(b"".join([sealed.line(row | {"return": value}), *lines[1:]]))
        with pytest.raises(Damaged, match=r"not a number|damaged"):
            read_metrics(run)
    import zlib

    for text in (b'{"iteration": 1' + b"0" * 5000 + b"}", b"[" * 10**5 + b"}"):
        (run / METRICS).write_bytes(b'%s, "check": "%08x"}\n' % (text[:-1], zlib.crc32(text)) + b"".join(lines))
        with pytest.raises(Damaged, match="line 1 is damaged"):
            read_metrics(run)


def test_a_compact_copy_that_somebody_made_sound(run, monkeypatch):
    monkeypatch.setattr(compact, "WORTH", 0)
    wanted, copy = read_metrics(run), run / compact.COPY
    arrays, about = checkpoint.read_verified(copy)
    about.pop("iteration")
    for change in ({"seed": np.zeros(2)}, {"steps": np.zeros(len(wanted))}, {"return": np.zeros((len(wanted), 2))}):
        copy.write_bytes(checkpoint.encode(arrays | change, 0, about)[0])
        pd.testing.assert_frame_equal(read_metrics(run), wanted)
    for change in ({"columns": ["seed", "none"]}, {"columns": [[1]]}, {"words": 5}, {"words": ["a", "a"]}):
        copy.write_bytes(checkpoint.encode(arrays, 0, about | change)[0])
        pd.testing.assert_frame_equal(read_metrics(run)[["seed"]], wanted[["seed"]])


# --- texts ------------------------------------------------------------------------------------------------------------


def test_a_terminal_is_told_nothing_by_a_file(run, ends, tmp_path, monkeypatch):
    """Names and reasons are shown; what a terminal would obey in them is spelt out."""
    config = json.loads((run / "config.json").read_text())
    config.pop("sha256")
    for entry in ("env", "algo", "backend"):
        write_sealed(run / "config.json", config | {entry: f"x{ESCAPE}\nboo"})
        said = ends(["watch", "check", "plot", "resume"])
        assert "boo" in "".join(said.values()) or "damaged" in said["check"]
    write_sealed(run / "config.json", config)
    write_sealed(run / "error.json", {"error": ESCAPE})
    who = {"token": "a", "pid": 1, "host": ESCAPE, "boot": "b", "beats": 1}
    (run / ".owner").write_text(json.dumps(who))
    assert "\\x1b" in ends(["resume"])["resume"]
    place = tmp_path / f"dir{ESCAPE}\nfake"
    run.rename(place)
    monkeypatch.chdir(tmp_path)
    for words in (["watch", "."], ["check", "."], ["check", place.name], ["plot", f"{place.name}/none"]):
        monkeypatch.setitem(COMMANDS, "there", [*words, *(["--once"] if words[0] == "watch" else [])])
        assert "fake" in ends(["there"])["there"]
    assert shown("a\ud800\u202eb c\u00e9") == "a\\ud800\\u202eb cé"


@pytest.mark.parametrize("who", [{"token": []}, {"pid": "1"}, {"beats": None}, {"host": 5}])
def test_an_owner_that_somebody_made_up(run, ends, who):
    (run / ".owner").write_text(json.dumps({"token": "a", "pid": 1, "host": "h", "boot": "b", "beats": 1} | who))
    assert "watching" not in ends(["resume"])["resume"]


def test_a_folder_s_name_is_no_markup_and_no_formula(run, ends, tmp_path, monkeypatch):
    for name in ("[", "[ red]", "[blue]", "$\\frac$"):
        place = run.rename(tmp_path / name)
        run = place
        monkeypatch.setitem(COMMANDS, "there", ["report", str(place), "--episodes", "0"])
        monkeypatch.chdir(place)
        said = ends(["plot", "there", "watch", "check"])
        assert f"{name}/report" in said["there"].replace("\n", "")


def test_a_name_in_a_figure_is_no_formula(tmp_path):
    figure = Figure()
    texts = [figure.text(0, 0, text) for text in ("$\\frac$", "costs $5", "θ$_A$, best", "e$_c$ and e$_r$")]
    style.save(figure, tmp_path / "a.svg")
    assert [text.get_parse_math() for text in texts] == [False, False, True, True]


@pytest.mark.parametrize("groups", [5, [5], [{}], [{"env": 1, "algo": [], "variant": {}, "seeds": [1]}], {"a": 1}])
def test_a_record_that_somebody_made_up(run, ends, groups, monkeypatch):
    (run / "results.json").write_text(json.dumps({"format": 1, "groups": groups}))
    monkeypatch.setitem(COMMANDS, "made up", ["report", "results.json", "--no-page"])
    assert "is no record" in ends(["made up"])["made up"]


def test_a_page_holds_no_markup_of_a_file(run):
    title = "<script>alert(1)</script>{{script}}{{data}}</title><!--"
    record = records.load(run) | {"title": title, "name": title}
    page = report.render(record, [])
    assert page.count("<script") == 2 and "{{script}}" in page and "<!--" not in page


def test_a_table_holds_no_formula(tmp_path, run):
    with RunWriter(tmp_path / "csv", tensorboard=False) as writer:
        row = {"iteration": 1, "steps": 1, "seed": 0, "mode": "=cmd|' /C calc'!A0", "return": -1.5, "@task": None}
        writer.write([row])
    logger = CSVLogger(tmp_path / "csv", load_plan(run))
    logger.close()
    names, cells = csv.reader((tmp_path / "csv" / "metrics.csv").open(newline=""))
    assert "'@task" in names and cells[3].startswith("'=") and cells[4] == "-1.5"


# --- options from files -----------------------------------------------------------------------------------------------

RUNS_IT = [
    'logger = ["csv", "--env-python", "/tmp/x"]',
    'cost_limit = ["5", "--env-python", "/tmp/x"]',
    'algo = "--env-python=/tmp/x"',
    'set = ["--overwrite"]',
    '[set]\n"--env-python" = "/tmp/x"',
    '[set]\n"encoder " = "a:B"',
    'set = [" encoder=a:B"]',
    'init_from = "hf://user/name"',
    'logger = "csv,wandb"',
    'out = "../elsewhere"',
    'out = "/tmp/elsewhere"',
]


@pytest.mark.parametrize("line", RUNS_IT)
def test_a_file_of_options_cannot_ask_for_what_is_only_typed(line, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "pull", lambda _: pytest.fail("it was fetched"))
    (tmp_path / "a.toml").write_text(f'env = "CartPole-v1"\ncost_keys = "x"\n{line}\n')
    with pytest.raises(UsageError, match=r"would be an option|names code|leads out"):
        from cppo.commands.cli import parse

        parse(["train", "--config", str(tmp_path / "a.toml")])


def test_nothing_is_fetched_because_a_run_says_so(run, ends, monkeypatch):
    monkeypatch.setattr(hub, "pull", lambda _: pytest.fail("it was fetched"))
    config = json.loads((run / "config.json").read_text())
    config.pop("sha256")
    write_sealed(run / "config.json", config | {"init_from": "hf://user/name"})
    shutil.rmtree(run / "checkpoints")
    (run / METRICS).unlink()
    assert "only its files ask to fetch" in ends(["resume"])["resume"]


@pytest.mark.parametrize("name", ["a.toml", "config.json"])
def test_bombs_in_files_of_options(name, tmp_path):
    from cppo.commands.cli import parse

    text = "x = " + "[" * 10**5 if name == "a.toml" else "[" * 10**5
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError):
        parse(["train", "--config", str(tmp_path / name)])


@pytest.mark.parametrize("how", ["link", "other name", "pipe", "nonsense", "not ours"])
def test_a_search_goes_on_from_its_own_journal_alone(how, tmp_path):
    (tmp_path / "out").mkdir()
    journal, victim = tmp_path / "out" / tune.JOURNAL, tmp_path / "VICTIM"
    victim.write_text("")
    if how in ("link", "other name"):
        journal.symlink_to(victim) if how == "link" else os.link(victim, journal)
    elif how == "pipe":
        os.mkfifo(journal)
    else:
        journal.write_text("[\n{}\n" if how == "nonsense" else '{"op_code": "x"}\n{}\n')
    with pytest.raises((UsageError, OSError), match=r"is a link|no file|No such device|is damaged"):
        tune.tune("ppo_lag", "ProbeBox", ["kl=0.01:0.1"], trials=1, steps=100, out=tmp_path / "out", show=False)
    assert victim.read_text() == ""
