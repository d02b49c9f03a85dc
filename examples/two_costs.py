"""An environment of your own with two costs, each with its limit: a courier who may neither speed nor cross the mud.

python examples/two_costs.py
cppo train --env two_costs:Courier --cost-keys speed,mud --cost-limit 3 2 --episode-length 50    # from this folder
"""

import sys

import gymnasium
import numpy as np

import cppo


class Courier(gymnasium.Env):
    """Go east as far as you can in 50 steps. Faster than 0.5 is speeding; below y = 0 lies mud, where one goes faster.

    What it returns besides: ``info["speed"]`` and ``info["mud"]``, the two costs of the step, and how far it has come.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.array([0.0, self.np_random.uniform(-0.5, 0.5)])
        return self.see(), {}

    def step(self, action):
        mud = self.place[1] < 0.0
        way = np.asarray(action, float) * (1.5 if mud else 1.0)
        self.place = self.place + 0.1 * way
        info = {"speed": float(np.linalg.norm(action) > 0.5), "mud": float(mud), "distance": self.place[0]}
        return self.see(), float(way[0]), False, False, info

    def see(self):
        return self.place.astype(np.float32)


def main(steps=60_000, out="runs/courier", **settings):
    env = cppo.envs.from_gymnasium(Courier, cost_keys=("speed", "mud"), episode_length=50, measures=("distance",))
    settings = {"batch_size": 2000, "num_envs": 10, "policy_rate": 1e-3, **settings}
    return cppo.train("cppo", env, cost_limit=(3.0, 2.0), steps=steps, settings=settings, out=out, overwrite=True)


if __name__ == "__main__":
    run = main(*map(int, sys.argv[1:]))
    print(run.summary["final_return"], run.summary["final_cost"], run.summary["final_task"])
