"""Readers of files that anybody may have written: whatever is in them, they give what it is or say what is wrong."""

import contextlib
import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cppo.commands import watch
from cppo.errors import UsageError
from cppo.reports import folders, records
from cppo.runs import check, checkpoint
from cppo.runs.metrics import METRICS, read_metrics
from cppo.runs.plan import load_plan
from cppo.runs.run import failure, read_summary
from cppo.runs.sealed import write_sealed
from cppo.study import definition

OLD = Path(__file__).parents[1] / "data" / "old"
SHORT, LONG = 25, 2000  # examples of each reader
NUMBERS = st.one_of(st.integers(), st.floats(), st.just(10**400), st.just(-1), st.just(0))
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=20))
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)


def often(count):
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=quiet)


@pytest.fixture
def run(tmp_path):
    return Path(shutil.copytree(OLD / "finished", tmp_path / "run"))


@pytest.fixture
def study(tmp_path):
    return Path(shutil.copytree(OLD / "study", tmp_path / "study"))


def refused_or(read):
    """What is read, or None where that is refused in a line."""
    try:
        return read()
    except UsageError as error:
        assert "\n" not in str(error) and len(str(error)) < 5000
        return None


def changed(content, data):
    """One entry of a table, however deep, in another form: replaced, removed or added."""
    content = json.loads(json.dumps(content))
    place = content
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return content
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and data.draw(st.booleans()):
            place = place[key]
            continue
        how = data.draw(st.sampled_from(["replace", "remove", "add"]))
        if how == "remove":
            del place[key]
        elif how == "add" and isinstance(place, dict):
            place[data.draw(st.text(max_size=8))] = data.draw(JSON)
        else:
            place[key] = data.draw(JSON)
        return content


def write(path, content, sealed):
    if sealed:
        write_sealed(path, content)
    else:
        path.write_text(json.dumps(content), errors="surrogatepass")


def twice(test):
    """The test with few examples by default and with many as a slow one."""
    return pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])(test)


@twice
def test_settings_of_a_run(run, count):
    whole = json.loads((run / "config.json").read_text())

    @often(count)
    @given(data=st.data(), sealed=st.booleans())
    def fuzz(data, sealed):
        with contextlib.suppress(OverflowError, UnicodeEncodeError, UsageError):  # no file could hold it
            write(run / "config.json", changed(whole, data), sealed)
        plan = refused_or(lambda: load_plan(run))
        assert plan is None or (plan.iterations > 0 and plan.cost_limits is not None)
        watch.overview(run)
        check.check(run)

    fuzz()


@twice
def test_how_a_run_ended(run, count):
    whole = json.loads((run / "summary.json").read_text())

    @often(count)
    @given(data=st.data(), sealed=st.booleans())
    def fuzz(data, sealed):
        with contextlib.suppress(OverflowError, UnicodeEncodeError):
            write(run / "summary.json", changed(whole, data), sealed)
            write(run / "error.json", changed({"error": "x"}, data), sealed)
        refused_or(lambda: read_summary(run))
        refused_or(lambda: failure(run))
        check.check(run)

    fuzz()


@twice
def test_rows(run, count):
    whole = (run / METRICS).read_text().splitlines()

    @often(count)
    @given(data=st.data())
    def fuzz(data):
        lines = list(whole)
        at = data.draw(st.integers(0, len(lines) - 1))
        row = changed(json.loads(lines[at]), data)
        lines[at] = data.draw(st.one_of(st.just(json.dumps(row)), st.text(max_size=40)))
        (run / METRICS).write_text("\n".join(lines) + "\n", errors="surrogatepass")
        frame = refused_or(lambda: read_metrics(run))
        assert frame is None or len(frame) <= len(lines) + 1
        watch.overview(run)
        check.check(run)

    fuzz()


@twice
def test_lists_of_runs(study, count):
    whole = json.loads((study / "study.json").read_text())

    @often(count)
    @given(data=st.data(), sealed=st.booleans())
    def fuzz(data, sealed):
        with contextlib.suppress(OverflowError, UnicodeEncodeError):
            write(study / "study.json", changed(whole, data), sealed)
        refused_or(lambda: folders.entries(study))

    fuzz()


@twice
def test_records(tmp_path, count):
    @often(count)
    @given(content=JSON)
    def fuzz(content):
        with contextlib.suppress(UnicodeEncodeError):
            write(tmp_path / "results.json", content, False)
        refused_or(lambda: records.load(tmp_path / "results.json"))

    fuzz()


@twice
def test_checkpoints(tmp_path, count):
    """Any bytes, any header, and sound files that say of themselves whatever they like."""
    path = tmp_path / "checkpoint-00000001.safetensors"

    @often(count)
    @given(data=st.data())
    def fuzz(data):
        kind = data.draw(st.sampled_from(["bytes", "header", "meta", "flip"]))
        sound = checkpoint.encode({"a": np.arange(3.0)}, 1, {"x": 1})[0]
        if kind == "bytes":
            content = data.draw(st.binary(max_size=200))
        elif kind == "header":
            header = data.draw(st.one_of(st.binary(max_size=100), JSON.map(lambda x: json.dumps(x).encode())))
            content = len(header).to_bytes(8, "little") + header + data.draw(st.binary(max_size=30))
        elif kind == "meta":
            try:
                content = checkpoint.encode({"a": np.arange(3.0)}, 1, {"x": data.draw(JSON)})[0]
            except (UnicodeEncodeError, ValueError):
                return
        else:
            at = data.draw(st.integers(0, len(sound) - 1))
            content = sound[:at] + bytes([sound[at] ^ (1 << data.draw(st.integers(0, 7)))]) + sound[at + 1 :]
        path.write_bytes(content)
        refused_or(lambda: checkpoint.load(path))
        with contextlib.suppress(checkpoint.Unusable):
            checkpoint.read_header(path)

    fuzz()


@twice
def test_studies_in_toml(tmp_path, count):
    names = st.sampled_from(["name", "title", "envs", "algos", "seeds", "steps", "settings", "variants", "part", "x"])
    value = st.sampled_from(["1", "-1", "1e5", "[]", '["PointCircle"]', '"cppo"', "{}", "{ a = 1 }", "nan", "[[1]]"])

    @often(count)
    @given(lines=st.lists(st.tuples(names, value), max_size=5), tail=st.text(max_size=10))
    def fuzz(lines, tail):
        path = tmp_path / "a.toml"
        path.write_text("".join(f"{name} = {text}\n" for name, text in lines) + tail, errors="surrogatepass")
        found = refused_or(lambda: definition.read(path))
        assert found is None or tomllib.loads(path.read_text()) is not None

    fuzz()
