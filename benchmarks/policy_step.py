"""The policy's part of an update, CPPO's E-step and M-step beside CPO's step, with the same critics.

Whole updates compare critics' epochs as much as methods. Here every method fits its critics in one step of Adam, and
the time of that and of the advantages is taken off. Timed in turns, so that a busy machine slows all alike; processor
seconds, medians.

    python benchmarks/policy_step.py                     30,000 samples as on PointGoal1, 1,000 as on PointCircle
    python benchmarks/policy_step.py --repeats 9 --samples 30000
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np
from algos import SPEC, Case, synthetic, timed

from cppo import algos, presets
from cppo.algos import on_policy as common
from cppo.networks import Networks
from cppo.settings import replace

ALIKE = {"cost_limit": (25.0,), "value_epochs": 1, "value_minibatches": 1, "critic_clock": False, "ignore": ()}
ENVS = {30_000: "PointGoal1", 1_000: "PointCircle"}


def cases(samples: int) -> dict[str, Case]:
    """``critics`` is what all have in common."""
    preset = presets.settings("cppo", ENVS.get(samples, "PointGoal1")) | {"batch_size": samples}
    sizes = {name: preset[name] for name in ("batch_size", "num_envs")}
    found = {
        "critics": ("ppo", sizes),
        "CPO": ("cpo", sizes),
        "CPPO, its defaults": ("cppo", sizes),
        "CPPO, preset on one batch": ("cppo", preset | {"reuse": 1}),
        "CPPO, preset": ("cppo", preset),
    }
    return {name: case(algo, changes, name == "critics") for name, (algo, changes) in found.items()}


def case(algo: str, changes: dict[str, Any], critics: bool) -> Case:
    row = algos.get(algo)
    settings = replace(row.settings(), changes | ALIKE)
    networks = Networks(SPEC, settings.hidden, settings.activation)
    batch, key = synthetic(settings.batch_size, settings.num_envs), jax.random.PRNGKey(1)
    agent = jax.jit(lambda k: row.init(networks, settings, k))(key)
    update = jax.jit(lambda a, b, k: row.update(networks, settings, a, b, k))
    agent, _ = update(agent, batch, key)

    def fit(agent: Any, batch: Any, key: Any) -> Any:
        return common.fit_critics(networks, settings, agent, common.prepare(networks, settings, agent, batch), key)

    chosen = Case(jax.jit(fit) if critics else update, (agent, batch, key))
    timed(chosen)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=list(ENVS))
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    for samples in arguments.samples:
        made = cases(samples)
        seen: dict[str, list[float]] = {name: [] for name in made}
        for _ in range(arguments.repeats):
            for name, one in made.items():
                seen[name].append(timed(one).cpu)
        median = {name: float(np.median(times)) for name, times in seen.items()}
        cpo = median["CPO"] - median["critics"]
        print(f"\n{samples:,} samples, median of {arguments.repeats}\n{'policy step of':<28}{'CPU ms':>8}{'of CPO':>8}")
        for name in list(made)[1:]:
            alone = median[name] - median["critics"]
            print(f"{name:<28}{1e3 * alone:>8.1f}{alone / cpo:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
