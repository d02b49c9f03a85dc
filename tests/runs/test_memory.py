"""What cannot fit is refused before anything is built, with the memory that it would need."""

import pytest

from cppo.errors import UsageError
from cppo.runs import memory
from cppo.runs.group import Group
from cppo.runs.plan import make_plan


def plan(env="PointGoal1", seeds=64, **settings):
    return make_plan("ppo_lag", env, seeds=seeds, settings={"hold": 1} | settings)


def test_64_seeds_with_10_000_worlds_are_refused_with_what_they_need(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 16 * 10**9)
    big = plan(num_envs=10_000, batch_size=1_000_000)
    step = 2 * big.spec.obs_shape[0] + 2 + 1 + memory.BESIDE
    assert memory.needed([big]) == 4 * step * 64 * 10**6
    with pytest.raises(UsageError, match=r"64 seeds with batches of 1,000,000 steps in 10,000 worlds need at least \d"):
        Group([big])


def test_what_fits_is_not_refused(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 16 * 10**9)
    memory.refuse([plan(num_envs=10_000, batch_size=10_000)])
    monkeypatch.setattr(memory, "available", lambda: None)  # nobody knows
    memory.refuse([plan(num_envs=10_000, batch_size=1_000_000)])


def test_replays_and_company_count():
    one = make_plan("cvpo", "ProbeBox", settings={"replay_size": 10**6})
    assert memory.needed([one]) > 4 * 10**6 and memory.needed([one, one]) == 2 * memory.needed([one])


def test_this_machine_has_memory():
    assert memory.available() is None or memory.available() > 10**8
