"""Evaluation plays episodes as training did: with fresh noise at every step of every world."""

import numpy as np

from cppo import envs
from cppo.policies.evaluate import rollout


class Recorder:
    """A policy of noise alone, which keeps what it was asked."""

    hold = 1

    def __init__(self):
        self.actions, self.deterministic = [], set()

    def act(self, obs, deterministic, seed):
        self.deterministic.add(deterministic)
        self.actions.append(np.random.default_rng(seed).uniform(size=(len(obs), 1)).astype(np.float32))
        return self.actions[-1]


def test_no_two_steps_and_no_two_seeds_share_their_noise():
    played = []
    for seed in (0, 1):
        policy = Recorder()
        totals = rollout(policy, envs.make("ProbeBox", num_envs=3), 6, False, seed)
        assert policy.deterministic == {False} and totals.length.tolist() == [10.0] * 6
        played += policy.actions
    assert len(np.unique(np.round(np.stack(played), 6))) == 2 * 2 * 10 * 3
