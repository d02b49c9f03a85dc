"""Gymnasium's HalfCheetah with a speed limit: run forward, but a step faster than 1 m/s costs 1.

python examples/half_cheetah_speed.py            # about two minutes on two cores
cppo train --env HalfCheetah-v5 --cost half_cheetah_speed:too_fast --cost-limit 50      # the same, from this folder
"""

import sys

import cppo


def too_fast(obs, action, next_obs, info):
    return float(info["x_velocity"] > 1.0)


def main(steps=300_000, out="runs/half_cheetah"):
    env = cppo.envs.from_gymnasium("HalfCheetah-v5", cost=too_fast)
    settings = {"batch_size": 10_000, "num_envs": 10, "obs_floor": 0.1, "value_epochs": 10}
    return cppo.train("cppo", env, cost_limit=50, steps=steps, settings=settings, out=out, overwrite=True)


if __name__ == "__main__":
    print(main(*map(int, sys.argv[1:])).summary["seeds"])
