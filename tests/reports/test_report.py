"""Records, figures, tables and the page; the page also in a real browser where there is one."""

import json
import math
import subprocess

import numpy as np
import pytest
from reports.browser import CHROMIUM, Browser

from cppo import envs
from cppo.networks import Networks
from cppo.reports import figures, report, tables
from cppo.reports import playback as replay
from cppo.reports import records as results
from cppo.reports.summaries import improvements, summaries
from cppo.runs.metrics import RunWriter, read_metrics, summarise
from cppo.runs.plan import make_plan
from cppo.runs.run import Policy
from cppo.runs.sealed import plain, write_json
from cppo.study.definition import Part, Study
from cppo.study.execute import write_manifest
from cppo.types import UsageError


def finished(folder, run, returns, costs):
    """A run's folder as training would leave it, with the given curves."""
    plan, place = run.plan, folder / "runs" / run.id
    place.mkdir(parents=True)
    plan.save(place, {"platform": "test", "jax": "0"})
    batch = plan.settings.batch_size
    rows = [
        {"iteration": i + 1, "steps": (i + 1) * batch, "seed": run.seed, "mode": "normal" if c <= 5 else "recovery",
         "return": r, "cost": c, "length": 50.0, "episodes": 20, "kl": 0.01, "kl_limit": 0.02, "theta": 1.0,
         "target_kl": 0.06 if i % 4 == 0 else 0.03, "above_two_share": 0.01,
         "previous_predicted_cost_change": 0.1, "realised_cost_change": 0.2, "seconds": 0.1 * i}
        for i, (r, c) in enumerate(zip(returns, costs, strict=True))
    ]  # fmt: skip
    with RunWriter(place, tensorboard=False) as writer:
        writer.write(rows)
    summary = summarise(read_metrics(place), plan.cost_limits, 1.0, plan.iterations * batch)
    write_json(place / "summary.json", summary)


@pytest.fixture
def folder(tmp_path):
    """PointCircle with two algorithms and a variant; one run unfinished, one failed."""
    parts = [
        Part(envs=["PointCircle"], algos=["cppo", "cpo"], seeds=3, steps=20_000),
        Part(
            envs=["PointCircle"], algos=["cppo"], seeds=2, steps=20_000, variants={"no recovery": {"recovery": False}}
        ),
    ]
    study = Study("small", parts, "A <small> study")
    runs = study.runs()
    write_manifest(study, tmp_path, runs, [])
    for run in runs[:-2]:
        over = run.algo == "cpo"
        steps = np.arange(20)
        finished(tmp_path, run, steps * 4.0 + run.seed, np.full(20, 6.0 if over else 4.0) + 0.1 * run.seed)
    (tmp_path / "runs" / runs[-1].id).mkdir()
    write_json(tmp_path / "runs" / runs[-1].id / "error.json", {"error": "NaN </script> costs"})
    return tmp_path


def test_the_record_and_its_statistics(folder):
    record = results.load(folder)
    assert [(g["algo"], g["variant"], len(g["seeds"])) for g in record["groups"]] == [("cppo", "", 3), ("cpo", "", 3)]
    assert len(record["unfinished"]) == 1 and record["failed"][0]["error"] == "NaN </script> costs"
    first = record["groups"][0]["seeds"][0]
    assert first["final_return"] == pytest.approx(np.mean([18 * 4.0, 19 * 4.0]))
    assert (first["violation_rate"], first["first_feasible"]) == (0.0, 1000.0)
    assert first["switches"] is None and record["groups"][1]["seeds"][0]["switches"] == 0  # cpo was over throughout
    cppo, cpo = summaries(record)
    assert (cppo["rank"], cpo["rank"]) == (1, 2)  # the returns are equal, the limit decides
    assert cppo["updates"]["target_kl"] == pytest.approx(0.0375) and cppo["updates"]["above_two_share"] == 0.01
    assert cppo["updates"]["target_kl_within"] == 0.75  # δ' = 0.02/(2 ln 2 − 1) = 0.0518
    assert cppo["within_count"] == 3 and cpo["within_count"] == 0
    assert cppo["cost"]["cost"].value == pytest.approx(4.1)
    assert (cppo["excess_cost"], cpo["excess_cost"]) == (0.0, pytest.approx(20_000 / 50 * 1.1))
    improvement = improvements(record)
    assert improvement[0]["probability"] == (1.0, pytest.approx(0.51, abs=0.01), 1.0)
    with pytest.raises(UsageError, match="holds no study"):
        results.load(folder / "runs" / "nothing")


def test_a_report_on_the_way_cuts_every_run_at_the_same_step(folder):
    (next(iter(sorted((folder / "runs").iterdir()))) / "summary.json").unlink()  # one run is unfinished
    assert sum(len(group["seeds"]) for group in results.load(folder)["groups"]) == 5
    record = results.load(folder, steps=10_000)
    assert [(group["steps"], len(group["seeds"])) for group in record["groups"]] == [(10_000, 3), (10_000, 3)]
    first = record["groups"][0]["seeds"][0]
    assert first["curve"]["steps"][-1] == 10_000 and first["final_return"] == pytest.approx(9 * 4.0)
    assert len(results.load(folder, steps=10**9)["groups"]) == 0


def test_figures_tables_and_page_come_from_the_saved_record_alone(folder, tmp_path):
    out = tmp_path / "first"
    page = report.write(folder, out, episodes=0)
    first = {path.name: path.read_bytes() for path in [*figures.write(results.load(folder), out), page]}
    tables.write(results.load(folder), out)
    again = results.load(out)  # results.json alone
    second = {path.name: path.read_bytes() for path in figures.write(again, tmp_path)}
    assert {"curves.png", "curves.svg", "geometry-PointCircle.svg"} <= set(second)
    assert all(first[name] == data for name, data in second.items())
    text = tables.render(again)
    results_table = text.split("## ")[1]
    assert (
        len({line.count("|") for line in results_table.splitlines() if line.startswith("|")}) == 1
    )  # no cell too many
    assert "| **CPPO** | 3 |" in text and "85 / 5.5 (paper, Figure 3)" in text and "NaN </script> costs" in text
    assert report.render(again, []).encode() == first["index.html"]


def test_what_no_one_commit_would_give_again_is_a_draft(folder, tmp_path):
    """Runs of a modified tree, or of two commits, come into a repository only when asked for, and marked."""
    record = results.load(folder)
    assert record["draft"] == ["the code's commit is not known"]
    assert "Draft: the code's commit is not known." in tables.render(record)
    (tmp_path / "figures").mkdir()
    figures.write(record, tmp_path / "figures")
    assert "Draft: the code" in (tmp_path / "figures" / "curves.svg").read_text()
    runs = sorted(path for path in (folder / "runs").iterdir() if (path / "versions.json").is_file())
    clean = {"git_commit": "a" * 40, "git_modified": False, "code": "x"}
    for run in runs:
        write_json(run / "versions.json", clean)
    assert "draft" not in results.load(folder) and "Draft" not in tables.render(results.load(folder))
    repository = tmp_path / "repository"
    repository.mkdir()
    if subprocess.run(["git", "init", "-q", str(repository)], check=False).returncode:
        pytest.skip("no git")
    (repository / ".gitignore").write_text("/runs/\n")
    kept = repository / "results"
    results.refuse_draft(results.load(folder), folder, kept)  # clean
    for other in ({"git_modified": True}, {"git_commit": "b" * 40}, {"code": "y"}):
        write_json(runs[0] / "versions.json", clean | other)
        with pytest.raises(UsageError, match=r"mark it: --draft"):
            results.refuse_draft(results.load(folder), folder, kept)
    record = results.load(folder)
    assert record["draft"] == ["runs of several commits"]
    results.refuse_draft(record, folder, repository / "runs" / "looked-at")  # ignored by git
    kept.mkdir()
    results.save(record, kept)
    results.refuse_draft(results.load(kept), kept, kept)  # a record is drawn again, with its mark
    assert results.load(kept)["draft"] == record["draft"]


def untrained(env):
    plan = make_plan("ppo", env)
    networks = Networks(plan.spec, (8, 8), "tanh", False)
    import jax

    from cppo.algos import get

    agent = get("ppo").init(networks, plan.settings, jax.random.PRNGKey(0))
    return Policy(networks, plan.settings, agent)


@pytest.mark.parametrize("env", ["PointCircle", "PointGoal1"])
def test_recorded_episodes_show_what_happened(env, monkeypatch):
    length = envs.spec(env).episode_length
    episodes = replay.record(untrained(env), env, episodes=2)
    assert len(episodes) == 2
    for episode in episodes:
        agent = next(one for one in episode["moving"] if one["kind"] == "agent")
        assert len(agent["track"]) == len(episode["cost"]) == length + 1
        path = np.array(agent["track"])[:, :2]
        if env == "PointCircle":
            costly = np.abs(path[1:-1, 0]) > 2.5
            np.testing.assert_array_equal(np.array(episode["cost"][1:-1]) > 0, costly)
            continue
        kinds = [one["kind"] for one in [*episode["fixed"], *episode["moving"]]]
        assert kinds.count("hazard") == 8 and kinds.count("goal") == 1 and kinds.count("vase") == 1
        hazards = np.array([one["at"] for one in episode["fixed"] if one["kind"] == "hazard"])
        distance = np.linalg.norm(path[1:-1, None] - hazards, axis=-1).min(1)
        sure = np.abs(distance - 0.2) > 2e-3  # positions are rounded to millimetres
        np.testing.assert_array_equal((np.array(episode["cost"][1:-1]) > 0)[sure], (distance <= 0.2)[sure])
        x, y, side = episode["view"]
        assert x <= path[:, 0].min() and path[:, 0].max() <= x + side and y <= path[:, 1].min()


def fake_replays():
    turn = np.linspace(0, 6, 51)
    track = np.column_stack([3 * np.cos(turn), 3 * np.sin(turn), turn]).tolist()
    shapes = {"fixed": [{"name": "h", "kind": "hazard", "size": 0.5, "at": [3, 0]}],
              "moving": [{"name": "agent", "kind": "agent", "size": 0.2, "track": track}]}  # fmt: skip
    episode = {"view": [-4, -4, 8], **shapes, "reward": [0.5] * 51, "cost": [1.0] * 5 + [0.0] * 46}
    about = {"env": "PointCircle", "variant": "", "limit": 3.0, "seed": 0, "episodes": [episode, episode]}
    return [{**about, "algo": "cppo"}, {**about, "algo": "cpo"}]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_the_page_in_a_browser(folder, tmp_path, width, dark):
    page = tmp_path / "page.html"
    page.write_text(report.render(results.load(folder), fake_replays()), encoding="utf-8")
    with Browser(width, 900, dark) as browser:
        browser.open(page)
        wanted = {
            "glance",
            "curves",
            "results",
            "published",
            "replay",
            "improvement",
            "geometry",
            "problems",
            "provenance",
        }
        found = set(browser.run("[...document.querySelectorAll('section')].map(s => s.id)"))
        assert wanted <= found
        assert browser.run("document.querySelector('h1').textContent") == "A <small> study"
        assert browser.run("document.documentElement.scrollWidth") <= width  # nothing sticks out sideways
        assert browser.run("document.querySelectorAll('#curves svg path').length") >= 8

        # A name in the legend hides its curves and shows them again.
        before = browser.run("document.querySelectorAll('#curves svg path').length")
        browser.run("document.querySelector('#curves .legend button').click()")
        assert browser.run("document.querySelectorAll('#curves svg path').length") < before
        browser.run("document.querySelector('#curves .legend button').click()")
        assert browser.run("document.querySelectorAll('#curves svg path').length") == before

        # The replay: the slider moves the robot, play runs and stops, panels can be hidden.
        pixels = "[...document.querySelectorAll('#stage canvas')].map(c => c.toDataURL()).join()"
        start = browser.run(pixels)
        set_slider = "(s => {{ s.value = {}; s.dispatchEvent(new Event('input')) }})(document.getElementById('slider'))"
        browser.run(set_slider.format(30))
        assert browser.run("document.getElementById('clock').textContent") == "step 30 / 50"
        assert browser.run(pixels) != start
        assert "cost 5 / 3" in browser.run("document.querySelector('#stage figcaption').textContent")
        browser.run(set_slider.format(2))
        assert browser.run("document.querySelectorAll('#stage figure.hit').length") == 2  # a cost flashes
        browser.run("document.getElementById('play').click()")
        assert "Pause" in browser.run("document.getElementById('play').textContent")
        browser.run("new Promise(done => setTimeout(done, 700))")
        browser.run("document.getElementById('play').click()")
        assert browser.run("+document.getElementById('slider').value") > 2
        browser.run("document.querySelector('#replay .legend button').click()")
        assert browser.run("document.querySelectorAll('#stage canvas').length") == 1

        # Light and dark.
        colour = "getComputedStyle(document.body).backgroundColor"
        browser.run("document.getElementById('theme').click()")
        light = browser.run(colour)
        browser.run("document.getElementById('theme').click()")
        assert browser.run(colour) != light
        browser.settle()
        assert browser.complaints == []
        assert browser.requests == [page.as_uri()]


def test_the_median_seed_is_shown(folder):
    group = results.load(folder)["groups"][0]
    assert report._median_seed(group) == 1
    assert math.isfinite(group["seeds"][0]["final_return"])
    assert json.loads(json.dumps(plain({"a": [math.nan, 1.0]}))) == {"a": [None, 1.0]}
