"""How much of what a batch promises do other batches of the same policy confirm?

Takes a trained run of a MuJoCo task, collects batches of its size with the policy held still, and fits critics on two
of them. From the others come natural steps of one size (KL 0.02): down the cost and up the return, from one, two and
four batches. Columns: the change of an episode's cost or return that the step's own samples promise, and what the
remaining batches say of the same step.

    cppo train --algo ppo --env PointGoal1 --seeds 1 --seed 60 --steps 1500000 --out runs/ppo
    python scripts/confirmed.py runs/ppo [--batches 8] [--cost-decay 0.95 0.8]
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import cppo
from cppo import envs
from cppo.maths import critics, normalise, trust_region
from cppo.maths.advantages import gae
from cppo.networks import scale_action

KL = 0.02
FISHER_STATES = 8000
FOR_CRITICS = 2  # batches
ROUNDS, EPOCHS, MINIBATCHES = 4, 4, 64  # of fitting them; λ-returns are computed anew in each round


def collect(policy: Any, env: Any, length: int) -> dict[str, np.ndarray]:
    """(time, world) arrays of one whole episode of every world."""
    act = jax.jit(lambda o, k: policy.networks_act(o, k))
    obs, steps = env.reset(seed=5), []
    for key in jax.random.split(jax.random.PRNGKey(0), length):
        action = act(jnp.asarray(obs, jnp.float32), key)
        step = env.step(np.asarray(scale_action(env.spec, action)))
        ended = (step.terminated, step.truncated)
        steps.append((obs, np.asarray(action), step.final_obs, step.reward, step.cost[:, 0], *ended))
        obs = step.obs
    names = ("obs", "action", "next_obs", "reward", "cost", "terminated", "truncated")
    return {name: np.stack([step[i] for step in steps]) for i, name in enumerate(names)}


class Still:
    """A policy held still, and what its batches say."""

    def __init__(self, run: cppo.Run, seed: int, batches: int):
        policy = run.policy(seed=seed)
        self.networks, self.agent, self.settings = policy.networks, policy.agent, policy.settings
        self.worlds = self.settings.num_envs
        env = envs.make(policy.spec.name, num_envs=self.worlds * batches)
        self.length = env.spec.episode_length
        self.data = collect(self, env, self.length)
        see = lambda name: normalise.apply(self.agent.normaliser, jnp.asarray(self.data[name]), 1e-3)  # noqa: E731
        self.obs, self.next_obs = see("obs"), see("next_obs")
        self.policy_obs = normalise.policy_view(self.settings, self.agent, jnp.asarray(self.data["obs"], jnp.float32))
        self.policy_obs = self.policy_obs.reshape(-1, self.policy_obs.shape[-1])
        self.flat, self.as_tree = ravel_pytree(self.agent.policy)
        action = jnp.asarray(self.data["action"]).reshape(-1, self.data["action"].shape[-1])
        log_prob = jax.vmap(lambda p, o, a: self.networks.policy(self.as_tree(p), o).log_prob(a), (None, 0, 0))
        _, push = jax.linearize(lambda p: log_prob(p, self.policy_obs, action), self.flat)
        self.pull = jax.jit(lambda y: jax.linear_transpose(push, self.flat)(y)[0])

    def networks_act(self, obs: Any, key: Any) -> Any:
        seen = normalise.policy_view(self.settings, self.agent, obs)
        draw = lambda o, k: self.networks.policy(self.agent.policy, o).sample(k)  # noqa: E731
        return jax.vmap(draw)(seen, jax.random.split(key, obs.shape[0]))

    def advantage(self, signal: str, decay: float) -> Any:
        """GAE with a critic fitted on the first batches."""
        values = jax.jit(jax.vmap(jax.vmap(self.networks.value, (None, 0)), (None, 0)))
        fit = jax.jit(
            lambda c, o, t, k: critics.fit(
                self.networks.value, c, o, t, k, rate=1e-3, epochs=EPOCHS, minibatches=MINIBATCHES
            )[0]
        )
        estimate = lambda v, after: gae(  # noqa: E731
            jnp.asarray(self.data[signal], jnp.float32),
            v,
            after,
            *(jnp.asarray(self.data[name]) for name in ("terminated", "truncated")),
            0.99,
            decay,
        )
        critic = critics.init(self.networks.init_value(jax.random.PRNGKey(1)))
        some = slice(0, FOR_CRITICS * self.worlds)
        inputs = self.obs[:, some].reshape(-1, self.obs.shape[-1])
        for key in jax.random.split(jax.random.PRNGKey(2), ROUNDS):
            v, after = values(critic.params, self.obs), values(critic.params, self.next_obs)
            critic = fit(critic, inputs, (estimate(v, after) + v)[:, some].reshape(-1), key)
        return estimate(values(critic.params, self.obs), values(critic.params, self.next_obs))

    def gradients(self, advantage: Any) -> Any:
        """One for each batch that no critic was fitted on."""
        count = advantage.shape[1] // self.worlds
        batch = jnp.arange(advantage.size) % advantage.shape[1] // self.worlds
        rows = []
        for number in range(FOR_CRITICS, count):
            chosen = (batch == number) / (self.worlds * self.length)
            flat = advantage.reshape(-1)
            rows.append(self.pull(chosen * (flat - jnp.sum(chosen * flat))))
        return jnp.stack(rows)

    def report(self, name: str, sign: float, gradients: Any) -> None:
        states = self.policy_obs[:: max(1, len(self.policy_obs) // FISHER_STATES)]
        before = jax.vmap(lambda o: self.networks.policy(self.agent.policy, o))(states)
        at = lambda p: jax.vmap(lambda b, o: b.kl(self.networks.policy(self.as_tree(p), o)))(before, states)  # noqa: E731
        fisher = jax.jit(trust_region.fisher_product(lambda p: jnp.mean(at(p)), self.flat, 0.0))
        damped = lambda x: fisher(x) + 0.1 * x  # noqa: E731
        solve = jax.jit(lambda g: trust_region.conjugate_gradient(damped, g, 10).x)
        for size in (1, 2, 4):
            promised, confirmed = [], []
            for first in range(0, len(gradients) - size + 1, size):
                own = gradients[first : first + size].mean(0)
                others = jnp.concatenate([gradients[:first], gradients[first + size :]]).mean(0)
                x = sign * solve(own)
                x = x * jnp.sqrt(2 * KL / (x @ fisher(x)))
                promised.append(self.length * float(own @ x))
                confirmed.append(self.length * float(others @ x))
            print(f"{name:28} {size:7} {np.mean(promised):+10.2f} {np.mean(confirmed):+10.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--cost-decay", type=float, nargs="+", default=[0.95, 0.8])
    arguments = parser.parse_args()
    run = cppo.load(arguments.run)
    still = Still(run, run.plan.seeds[0], arguments.batches)
    totals = {name: still.data[name].sum(axis=0).mean() for name in ("reward", "cost")}
    print(f"policy: return {totals['reward']:.1f}, cost {totals['cost']:.1f}; steps of KL {KL}")
    print(f"{'':28} {'batches':>7} {'promised':>10} {'confirmed':>10}")
    for decay in arguments.cost_decay:
        still.report(f"cost, down, λ_c {decay}", -1.0, still.gradients(still.advantage("cost", decay)))
    still.report("return, up, λ 0.97", 1.0, still.gradients(still.advantage("reward", 0.97)))


if __name__ == "__main__":
    main()
