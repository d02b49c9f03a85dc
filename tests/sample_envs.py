"""Gymnasium environments of every kind that a user may bring, one step from the closed form."""

import ctypes
import fcntl
import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Line(gymnasium.Env):
    """A point on a line: the action is added to it, reward 1 − |x|, cost |action|; beyond the edge it terminates."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-2.0, 4.0, (1,), np.float32)
    edge = 5.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.uniform(-0.1, 0.1)), 0
        return self.see(), {}

    def step(self, action):
        self.move(action)
        return self.see(), 1.0 - abs(self.x), abs(self.x) > self.edge, False, self.info(action)

    def move(self, action):
        self.x, self.t = self.x + float(np.sum(action)), self.t + 1

    def see(self):
        return np.asarray([self.x, self.t], np.float32)

    def info(self, action):
        return {"cost": float(np.abs(action).sum()), "left": float(self.x < 0), "right": float(self.x > 0)}


class LongLine(Line):
    edge = np.inf


class Aging(gymnasium.Env):
    """A step costs 1 with a chance of age/40, and is the last with a chance of 0.04."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        cost, end = self.np_random.random(2) < (self.t / 40, 0.04)
        self.t += 1
        return np.zeros(1, np.float32), 0.0, bool(end), False, {"cost": float(cost)}


class Drawn(Line):
    """Draws itself: a wide picture whose brightness is the time."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.full((30, 90, 3), 40 * self.t, np.uint8)


class VectorCost(Line):
    def info(self, action):
        return {"cost": np.asarray([1.0, 2.0, 3.0])}


class NoCost(Line):
    def info(self, action):
        return {"speed": 1.0}


class SixTuple(Line):
    """Safety-gymnasium's signature."""

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, 7.0, terminated, truncated, {"cost_sum": 1.0}


class Dict(Line):
    observation_space = spaces.Dict({"x": spaces.Box(-9, 9, (1,), np.float32), "parity": spaces.Discrete(2)})

    def see(self):
        return {"x": np.asarray([self.x], np.float32), "parity": self.t % 2}


class Picture(LongLine):
    observation_space = spaces.Box(0, 255, (8, 8, 1), np.uint8)

    def see(self):
        picture = np.zeros((8, 8, 1), np.uint8)
        picture[:, int(np.clip(self.x + 4, 0, 7))] = 255
        return picture


class Choices(Line):
    """MultiDiscrete: a direction and a length; reward only for the pair (1, 2), cost for length 2."""

    action_space = spaces.MultiDiscrete([2, 3])

    def step(self, action):
        self.t += 1
        reward = float(action[0] == 1) * float(action[1]) / 2
        return self.see(), reward, False, False, {"cost": float(action[1] == 2)}


class FromFive(Line):
    """Discrete actions that are numbered from 5."""

    action_space = spaces.Discrete(2, start=5)

    def step(self, action):
        assert action in (5, 6)
        return super().step(np.asarray([action - 5]))


class Unbounded(Line):
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Trouble(LongLine):
    """Goes wrong at the fourth step of an episode, as often as the file named by TROUBLE has letters left."""

    def step(self, action):
        if self.t == 3:
            with open(os.environ["TROUBLE"], "r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # two processes must not take the same letter
                letters = file.read()
                file.seek(0)
                file.truncate()
                file.write(letters[1:])
            if letters:
                self.fail(letters[0])
        return super().step(action)

    def fail(self, letter):
        if letter == "r":
            raise RuntimeError("the motor is on fire")
        if letter == "s":
            self.see = lambda: np.zeros(1, np.float32)  # broadcasts into any observation
            return
        if letter == "g":
            ctypes.PyDLL(None).sleep(600)  # in compiled code, and nothing else in the process may run
        if letter == "x":
            os._exit(3)
        time.sleep(600)


class Wrong(LongLine):
    """What one entry of a step or of a first observation is, by the name of the class made by ``wrong``."""

    what, value = "obs", None

    def reset(self, **options):
        obs, info = super().reset(**options)
        return (self.value if self.what == "reset" else obs), info

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.t == 2:  # after the step by which the environment is described
            found = {"obs": obs, "reward": reward, "cost": info["cost"], "terminated": terminated}
            found = {**found, self.what: self.value}
            return found["obs"], found["reward"], found["terminated"], truncated, {"cost": found["cost"]}
        return obs, reward, terminated, truncated, info


def wrong(what, value):
    return type("Wrong", (Wrong,), {"what": what, "value": value})()


def limited(cls=LongLine, steps=10):
    return gymnasium.wrappers.TimeLimit(cls(), steps)


def one(obs, action, next_obs, info):
    return 1.0


gymnasium.register("LineSample-v0", entry_point=Line, max_episode_steps=10)
gymnasium.register("LongLineSample-v0", entry_point=LongLine, max_episode_steps=10)
