"""A task seen through a camera: 12×12 pixels, a small CNN, and a cost for every step on the red side.

python examples/image_task.py
"""

import sys

import gymnasium
import numpy as np

import cppo

SIZE = 12


class Lights(gymnasium.Env):
    """A lamp stands left or right, and moves each step. A push towards it earns; when it is red, it costs as much."""

    observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.see(), {}

    def step(self, action):
        push = float(np.clip(action[0], -1, 1)) * self.side
        cost = max(push, 0.0) * self.red
        return self.see(), push, False, False, {"cost": cost}

    def see(self):
        """A new lamp, and its picture: brightness where it stands, red or green."""
        self.side, self.red = self.np_random.choice([-1, 1]), self.np_random.random() < 0.5
        picture = np.zeros((SIZE, SIZE, 3), np.uint8)
        row, column = self.np_random.integers(1, SIZE - 2), 2 if self.side < 0 else SIZE - 4
        picture[row : row + 2, column : column + 2, 0 if self.red else 1] = 255
        return picture


def main(steps=40_000, out="runs/lights", **settings):
    env = cppo.envs.from_gymnasium(Lights, episode_length=20)
    settings = {"batch_size": 1000, "num_envs": 10, "policy_rate": 1e-3, "value_epochs": 10, **settings}
    return cppo.train("cppo", env, cost_limit=2.0, steps=steps, settings=settings, out=out, overwrite=True)


if __name__ == "__main__":
    print(main(*map(int, sys.argv[1:])).summary["seeds"])
