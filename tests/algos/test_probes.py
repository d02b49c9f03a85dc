"""Every algorithm of the table on problems whose best policy is known, all seeds at once.

Small networks and batches: a probe is decided by the algorithm, not by capacity.
"""

import jax
import numpy as np
import pytest

from cppo import algos, envs, presets
from cppo.runs.learner import Learner
from cppo.runs.plan import make_plan
from cppo.settings import describe, replace
from cppo.types import Box, Discrete, MultiDiscrete

OPTIMUM = {"ProbeBox": 3.0, "ProbeTwo": 8.0, "ProbeDiscrete": 5.625, "ProbeState": 2.5}
UNLIMITED = {"ProbeBox": 10.0, "ProbeTwo": 20.0, "ProbeDiscrete": 10.0, "ProbeState": 10.0}
IGNORES = ("ppo", "trpo", "mpo")
SWINGS = (
    "ppo_lag",
    "trpo_lag",
    "focops",
    "cup",
)  # the price circles around the right one: its time average is what is right
SHY = (
    "cppo",
    "cpo_hyst",
    "ctrpo",
    "p3o",
    "c3po",
    "ipo",
)  # recovery goes on below the limit, or noise above it weighs more
KIN = ("cpo_hyst", "crpo", "c3po", "ipo")  # one rule apart from another row
SMALL = {"hidden": (16, 16), "num_envs": 20, "batch_size": 200}
ON = {"value_epochs": 4, "value_minibatches": 2}
FIRST = {"epochs": 10, "minibatches": 2, "policy_rate": 2e-3}
# Reward and cost are one signal in the probes: estimated with different λ, or by critics that lag, they look like two.
CPPO = {"gae_decay": 0.9, "cost_gae_decay": 0.9, "value_epochs": 20}
OFF = {"value_steps": 20, "value_batch": 64, "replay_size": 4000, "states": 128, "actions": 16}


def learn(name: str, env: str, iterations: int, **changes):
    """Metrics (iteration, seed, …) of three seeds."""
    algorithm = algos.get(name)
    spec = envs.spec(env)
    algorithm.check(spec)
    known = {field for field, _, _ in describe(algorithm.settings)}
    small = SMALL | ON | FIRST | OFF | (CPPO if name == "cppo" else {})
    chosen = {k: v for k, v in small.items() if k in known}
    settings = replace(
        algorithm.settings(), chosen | presets.PAIR.get((name, env), {}) | {"cost_limit": spec.cost_limits} | changes
    )
    learner = Learner(algorithm, spec, [settings] * 3, [0, 1, 2], envs.build(env, settings.num_envs))
    state, history = learner.start()[0], []
    for _ in range(iterations):
        state, metrics = learner.iterate(state)
        history.append(metrics)
    history = jax.device_get(history)
    return {key: np.stack([row[key] for row in history]) for key in history[0]}


def check(name: str, env: str, seen: dict[str, np.ndarray]) -> None:
    """The second half's means against the known optimum and the limits."""
    limits = np.array(envs.spec(env).cost_limits)
    half = len(seen["return"]) // 2
    earned, cost = seen["return"][half:].mean(axis=0), seen["cost"][half:].mean(axis=0)
    assert np.all(np.isfinite(earned))
    if name in IGNORES:
        late = seen["return"][-len(seen["return"]) // 8 :].mean(axis=0)
        assert np.all(late > 0.93 * UNLIMITED[env]), f"return {late}"
        return
    below = 0.10 if name == "cppo" else 0.15 if name in (*SWINGS, *SHY) else 0.06
    if name in ("cpo_hyst", "ctrpo") and len(limits) > 1:
        below = 0.30  # each constraint's recovery goes on to 0.8 of its limit, and takes the other's cost along
    above = 0.15 if name in SWINGS else 0.06
    if name in SWINGS:
        earned, cost = earned.mean(keepdims=True), cost.mean(axis=0, keepdims=True)
        least = 0.1 if name == "cup" else 0.3  # nats, or reward, for a unit of cost
        assert np.all(seen["multiplier"][half:].mean(axis=(0, 1)) > least)
    assert np.all(earned > (1 - below) * OPTIMUM[env]), f"return {earned}, cost {cost}"
    assert np.all(cost < (1 + above) * limits), f"return {earned}, cost {cost}"


def iterations(name: str) -> int:
    return 300 if name in SWINGS else 120


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in KIN)) for n in algos.TABLE])
def test_learns_the_limit(name):
    check(name, "ProbeBox", learn(name, "ProbeBox", iterations(name)))


@pytest.mark.slow
@pytest.mark.parametrize("env", ["ProbeTwo", "ProbeDiscrete", "ProbeState"])
@pytest.mark.parametrize("name", list(algos.TABLE))
def test_learns_the_other_probes(name, env):
    slow = name == "cppo" or (env == "ProbeTwo" and name in SWINGS)
    length = (3 if slow else 2) * iterations(name)
    check(name, env, learn(name, env, length))


@pytest.mark.slow
def test_pcpo_projects_in_plain_parameters_too():
    check("pcpo", "ProbeBox", learn("pcpo", "ProbeBox", 120, projection="l2"))


def test_cpo_meets_two_limits_and_its_line_search_tells_the_truth():
    """Every accepted step keeps KL ≤ δ and no predicted cost above its room; a refused one changes nothing."""
    seen = learn("cpo", "ProbeTwo", 100)
    check("cpo", "ProbeTwo", seen)
    limits = np.array(envs.spec("ProbeTwo").cost_limits)
    room = np.maximum(limits - seen["cost"], 0.0)
    normal = seen["search_accepted"] & ~seen["recovering"]
    assert np.all(seen["kl"] <= seen["kl_limit"] * (1 + 1e-3))
    assert np.all(seen["predicted_cost_change"][normal] <= room[normal] + 1e-4)
    assert np.all(seen["kl"][~seen["search_accepted"]] <= 1e-6)
    assert seen["search_accepted"].mean() > 0.9


@pytest.mark.parametrize("name", list(algos.TABLE))
def test_every_method_has_settings_for_every_environment(name):
    for env in envs.names():
        values = make_plan(name, env).settings
        assert values.batch_size % values.num_envs == 0


def test_tables_say_what_a_method_takes():
    for row in algos.TABLE.values():
        factorised = () if row.name in ("mpo", "cvpo") else (MultiDiscrete,)  # they sample every choice of a state
        assert row.actions == (Box, Discrete, *factorised)
        assert row.reference and row.constraint
