"""Is there more to gain from the trust region? Tracking error on samples that the M-step never saw.

Trains CPPO on PointCircle for a while; then repeats its next normal update with different gains and numbers of epochs,
and holds each result against a large fresh batch of the same policy, whose target ratios come from an E-step of its
own. Columns: KL of the update; tracking error |v − r|/|v − 1| on its own samples and on the fresh ones; change of the
return and of the cost that the fresh samples predict, in units of an episode.

    python benchmarks/tracking.py [--seeds 4] [--iterations 60 120 180]
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cppo import algos, envs, presets
from cppo.algos.cppo import estep
from cppo.algos.on_policy import prepare
from cppo.maths import costs
from cppo.runs import collect, episodes
from cppo.runs.learner import Learner
from cppo.settings import replace

FRESH = 400  # episodes of the fresh batch
WAYS = [(1.0, 20), (2.5, 5), (2.5, 20), (2.5, 80), (4.0, 20), (4.0, 80), (8.0, 80)]  # gain, epochs


def fresh_batch(learner: Learner, settings: Any, agent: Any, key: Any, worlds: int, length: int) -> Any:
    env = envs.build("PointCircle", worlds)
    start_key, act_key = jax.random.split(key)
    state, obs = env.init(jax.random.split(start_key, worlds))
    running, window = episodes.start(worlds, 1)
    act = lambda a, o, k: learner.algorithm.act(learner.networks, settings, a, o, k)  # noqa: E731
    before = collect.Worlds(state, obs, running, window)
    after, rollout = collect.scan_collect(env, act, agent, before, act_key, length)
    return collect.to_batch(after, rollout, settings.cost_discount, 1)[1]


def one_way(learner: Learner, settings: Any, agent: Any, key: Any) -> dict[str, Any]:
    """An update with ``settings``, judged on its own batch and on a fresh one."""
    networks = learner.networks
    batch_key, update_key, fresh_key = jax.random.split(key, 3)
    batch = fresh_batch(learner, settings, agent, batch_key, settings.num_envs, 50)
    agent = agent._replace(extra=agent.extra._replace(recovering=jnp.zeros(1, bool)))
    updated, metrics = learner.algorithm.update(networks, settings, agent, batch, update_key)
    judge = fresh_batch(learner, settings, agent, fresh_key, FRESH, 50)
    data = prepare(networks, settings, agent, judge)
    budget = costs.budget(jnp.asarray(settings.cost_limit), judge.episodes, settings.cost_discount, settings.cost_unit)
    target = estep.solve(data.adv, data.cost_adv, budget, settings.kl / (2 * jnp.log(2.0) - 1)).ratios

    def log_prob(params: Any) -> Any:
        return jax.vmap(lambda o, a: networks.policy(params, o).log_prob(a))(data.obs, data.action)

    ratios = jnp.exp(log_prob(updated.policy) - log_prob(agent.policy))
    length = judge.episodes.length
    return {
        "kl": metrics["kl"],
        "own": metrics["tracking_error"],
        "fresh": jnp.linalg.norm(target - ratios) / jnp.linalg.norm(target - 1),
        "return": length * jnp.mean((ratios - 1) * data.adv),
        "cost": length * jnp.mean((ratios - 1) * data.cost_adv[0]),
        "normal": ~metrics["recovering"][0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=5000)
    parser.add_argument("--iterations", type=int, nargs="+", default=[60, 120, 180])
    arguments = parser.parse_args()
    algorithm, env = algos.get("cppo"), envs.build("PointCircle", 20)
    chosen = presets.settings("cppo", "PointCircle") | {"cost_limit": env.spec.cost_limits}
    lanes = [replace(algorithm.settings(), chosen)] * arguments.seeds
    learner = Learner(algorithm, env.spec, lanes, range(arguments.first, arguments.first + arguments.seeds), env)
    state, _, _ = learner.start()
    seen: dict[tuple[float, int], list[dict[str, np.ndarray]]] = {way: [] for way in WAYS}
    judges = {}
    for gain, epochs in WAYS:
        # Recovery off: what a normal update would do from here.
        settings = replace(lanes[0], {"gain": gain, "epochs": epochs, "recovery": False})
        judges[gain, epochs] = jax.jit(jax.vmap(lambda agent, key, s=settings: one_way(learner, s, agent, key)))
    for iteration in range(1, max(arguments.iterations) + 1):
        state, _ = learner.iterate(state)
        if iteration not in arguments.iterations:
            continue
        keys = jax.random.split(jax.random.PRNGKey(iteration), arguments.seeds)
        for way, judge in judges.items():
            seen[way].append(jax.device_get(judge(state.agent, keys)))
    print(f"{'gain':>5} {'epochs':>6} {'KL':>7} {'own':>6} {'fresh':>6} {'return':>7} {'cost':>6}")
    for (gain, epochs), results in seen.items():
        mean = {name: float(np.mean([r[name] for r in results])) for name in ("kl", "own", "fresh", "return", "cost")}
        print(
            f"{gain:5.1f} {epochs:6d} {mean['kl']:7.4f} {mean['own']:6.3f} {mean['fresh']:6.3f} "
            f"{mean['return']:7.2f} {mean['cost']:6.2f}"
        )


if __name__ == "__main__":
    main()
