"""Runs that advance together end as each would have alone."""

import dataclasses

import jax
import numpy as np
import pytest
from worlds import OnDevice, OnHost

import cppo
from cppo import envs
from cppo.envs.probes import ProbeState
from cppo.runs import checkpoint
from cppo.runs.engine import train_group
from cppo.runs.group import Group, world_key
from cppo.runs.options import Options
from cppo.runs.plan import make_plan
from cppo.runs.training import ensure


def alone(plan, iterations):
    group = Group([plan])
    state, found = together(group, group.start(), iterations)
    return group.split(state)[0], [metrics for (metrics,) in found]


def together(group, state, iterations):
    found = []
    for _ in range(iterations):
        state, metrics = group.iterate(state)
        found.append(metrics)
    return state, found


def assert_same(group, members, iterations, rtol):
    state, found = together(group, group.start(), iterations)
    for index in members:
        plan, own = group.plans[index], group.split(state)[index]
        expected, metrics = alone(plan, iterations)
        for iteration in range(iterations):
            for name in ("return", "cost", "episodes"):
                np.testing.assert_allclose(
                    found[iteration][index][name], metrics[iteration][name], rtol=rtol, err_msg=f"{plan.algo} {name}"
                )
        ours, theirs = jax.tree.leaves(own.agent.policy), jax.tree.leaves(expected.agent.policy)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=10 * rtol)  # Adam divides rounding by small gradients
        assert jax.tree.structure(own.host_env) == jax.tree.structure(expected.host_env)


@pytest.mark.slow
def test_lanes_with_other_seeds_and_numbers_equal_separate_runs():
    group = Group(
        [
            make_plan("ppo_lag", "ProbeBox", seed=seed, settings={"kl": kl, "cost_limit": limit})
            for seed, kl, limit in ((3, 0.02, 3.0), (4, 0.01, 4.0))
        ]
    )
    assert len(group.learners) == 1
    assert_same(group, [1], 2, 1e-4)


def host_plans(env="ProbeState", other="ppo", backend="host", **settings):
    algos = ("ppo_lag", other, "ppo_lag")
    plans = [make_plan(algo, env, seed=seed, settings=settings) for seed, algo in enumerate(algos)]
    return [dataclasses.replace(plan, backend=backend) for plan in plans]


@pytest.fixture(params=[OnHost])
def on_host(request, monkeypatch):
    monkeypatch.setattr(envs, "build", lambda name, num_envs, backend="auto": request.param(ProbeState(), num_envs))


@pytest.mark.parametrize("on_host", [OnHost, OnDevice], indirect=True)
def test_several_algorithms_share_one_batch_of_worlds(on_host):
    group = Group(host_plans(num_envs=4, batch_size=80))
    assert [len(learner.seeds) for learner in group.learners] == [2, 1]
    assert group.shared and group.env.num_envs == 12
    assert_same(group, [1, 2], 2, 1e-4)


def test_held_actions_are_the_same_on_host_and_device_and_in_company(monkeypatch):
    small = {"num_envs": 4, "batch_size": 80, "hidden": (8,), "value_epochs": 2, "epochs": 2}
    seen = {}
    for kind, backend in ((OnHost, "host"), (OnDevice, "warp")):
        monkeypatch.setattr(envs, "build", lambda name, number, backend="auto", kind=kind: kind(ProbeState(), number))
        plans = host_plans(backend=backend, hold=2, **small)
        seen[backend] = alone(plans[1], 2)[1][-1]
        if kind is OnHost:
            group = Group(plans[1:])
            seen["company"] = together(group, group.start(), 2)[1][-1][0]
    for other in ("warp", "company"):
        for name in ("return", "cost", "length"):
            np.testing.assert_allclose(seen["host"][name], seen[other][name], rtol=1e-4, err_msg=f"{other} {name}")
    assert seen["host"]["length"] == 10.0
    assert world_key(plans[0]) != world_key(host_plans(backend="warp", **small)[0])


def test_a_group_goes_on_from_its_members_states(on_host):
    group = Group(host_plans(num_envs=4, batch_size=80))
    middle, _ = together(group, group.start(), 1)
    straight, _ = together(group, middle, 1)
    rejoined, _ = together(group, group.join(group.split(middle)), 1)
    for a, b in zip(jax.tree.leaves(straight), jax.tree.leaves(rejoined), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    own, expected = group.split(group.start())[1], alone(group.plans[1], 0)[0]
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


@pytest.mark.slow
def test_mujoco_worlds_are_shared():
    group = Group(host_plans("PointGoal1", "cpo", "threads", num_envs=2, batch_size=60, value_epochs=2))
    assert group.shared and group.env.num_envs == 6
    assert_same(group, [0, 1, 2], 2, 1e-4)


def test_runs_of_several_seeds_train_together_and_may_start_from_another(tmp_path):
    options = Options(show=False, tensorboard=False)
    settings = {"batch_size": 100, "num_envs": 10, "value_epochs": 2, "epochs": 2}
    source = cppo.train("ppo_lag", "ProbeBox", steps=300, out=tmp_path / "source", settings=settings, show=False)
    follower = make_plan("ppo_lag", "ProbeBox", steps=200, seeds=2, settings=settings, init_from=str(source.folder))
    other = make_plan("ppo_lag", "ProbeBox", steps=200, seeds=2, seed=7, settings=settings | {"kl": 0.002})
    members = [(follower, tmp_path / "follower"), (other, tmp_path / "other")]
    train_group(members, options, lambda: False)
    alone = ensure(other, tmp_path / "alone", options)
    together = cppo.load(tmp_path / "other")
    assert together.metrics()["seed"].tolist() == [7, 8, 7, 8]
    np.testing.assert_allclose(together.metrics()["return"], alone.metrics()["return"], rtol=1e-4)
    first, trained = (
        checkpoint.load(folder / "checkpoints" / checkpoint.name_of(iteration))[0]
        for folder, iteration in ((tmp_path / "follower", 0), (source.folder, 3))
    )
    for name in (name for name in trained if name.startswith("agent.policy")):
        np.testing.assert_array_equal(first[name], np.concatenate([trained[name]] * 2))
