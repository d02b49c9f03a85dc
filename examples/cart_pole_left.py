"""Gymnasium's CartPole with a forbidden zone: balance the pole, but a step right of x = 0.1 costs 1.

python examples/cart_pole_left.py                # under a minute on two cores
cppo train --env CartPole-v1 --cost cart_pole_left:right_of_centre --cost-limit 10      # the same, from this folder
"""

import sys

import cppo


def right_of_centre(obs, action, next_obs, info):
    return float(next_obs[0] > 0.1)


def main(steps=100_000, out="runs/cart_pole"):
    env = cppo.envs.from_gymnasium("CartPole-v1", cost=right_of_centre)
    settings = {"batch_size": 4000, "num_envs": 16, "obs_floor": 0.1, "policy_rate": 1e-3}
    return cppo.train("cppo", env, cost_limit=10, steps=steps, settings=settings, out=out, overwrite=True)


if __name__ == "__main__":
    print(main(*map(int, sys.argv[1:])).summary["seeds"])
