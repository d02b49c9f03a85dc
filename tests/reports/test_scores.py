"""Episodes of final policies in a record, and what tables say of them."""

import numpy as np
import pytest

import cppo
from cppo.reports import records as results
from cppo.reports import scores, tables
from cppo.reports.summaries import summaries
from cppo.types import UsageError

QUICK = {"epochs": 1, "value_epochs": 1, "batch_size": 200, "num_envs": 20}


def test_final_policies_play_once_and_are_in_the_record(tmp_path, monkeypatch):
    run = cppo.train(
        "ppo_lag",
        "ProbeBox",
        steps=400,
        seeds=2,
        out=tmp_path / "run",
        settings=QUICK,
        show=False,
        tensorboard=False,
    )
    assert "| - | - |" in tables.render(results.load(run.folder))  # nothing was played
    scores.write(run.folder, 12)
    seeds = results.load(run.folder)["groups"][0]["seeds"]
    costs = [seed["episodes"]["cost"]["cost"] for seed in seeds]
    assert [len(one) for one in costs] == [12, 12] and costs[0] != costs[1]
    row = summaries(results.load(run.folder))[0]
    assert row["worst_tenth"]["cost"] == pytest.approx(np.mean([tail(one) for one in costs]))
    assert row["episodes_over"]["cost"] == np.mean([np.mean(np.array(one) > 3.0) for one in costs])
    assert f"| {row['worst_tenth']['cost']:.1f} | {row['episodes_over']['cost']:.0%} |" in tables.render(
        results.load(run.folder)
    )

    def refuse(*_):
        raise AssertionError("played again")

    monkeypatch.setattr(scores, "_played", refuse)
    scores.write(run.folder, 10)
    assert results.load(run.folder, steps=200)["groups"][0]["seeds"][0].get("episodes") is None  # other policies
    with pytest.raises(AssertionError, match="played again"):
        scores.write(run.folder, 20)
    with pytest.raises(UsageError, match="number of episodes"):
        scores.write(run.folder, 0)


def tail(costs):
    """Mean of the worst tenth of twelve: the worst one, and a fifth of the next."""
    first, second = sorted(costs)[::-1][:2]
    return (first + 0.2 * second) / 1.2


def group(algo, returns, costs):
    seeds = [
        {"seed": i, "final_return": r, "final_cost": {"cost": c}, "feasible": c <= 5.0}
        for i, (r, c) in enumerate(zip(returns, costs, strict=True))
    ]
    about = {"env": "PointCircle", "algo": algo, "variant": "", "steps": 1000, "backend": "jax", "settings": {}}
    return about | {"cost_limits": {"cost": 5.0}, "seeds": seeds}


@pytest.mark.parametrize(
    ("theirs", "leads"),
    [
        (([10.0, 12.0, 11.0], [4.0, 4.1, 4.2]), True),
        (([19.0, 21.0, 20.5], [4.0, 4.1, 4.2]), False),  # as good
        (([30.0, 31.0, 32.0], [5.1, 4.9, 5.3]), False),  # may be within the limit, and earns more
        (([30.0, 31.0, 32.0], [9.1, 9.2, 9.3]), True),  # is not within it
        (([10.0], [4.0]), False),  # one seed says nothing of noise
    ],
)
def test_who_leads_by_more_than_noise(theirs, leads):
    groups = [group("cppo", [20.0, 21.0, 22.0], [4.0, 4.2, 4.1]), group("cpo", *theirs)]
    first = next(row for row in summaries({"groups": groups}) if row["rank"] == 1)
    assert (first["algo"], first["leads"]) == ("cppo", leads)
