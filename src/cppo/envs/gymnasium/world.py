"""Worlds of somebody's Gymnasium environment, in a process of their own.

This file stands alone: it needs the standard library, NumPy (1.x or 2.x), Python 3.8 or newer and the environment's own
packages, nothing of cppo. Commands arrive on standard input and are answered on standard output, one line each:

    {"make": ..., ...}   JSON: import the environment, make one, say what it is like (JSON)
    {"attach": ...}      JSON: map the shared arrays, make the worlds, reset them
    {"seeds": ...}       JSON: reset every world
    s                    step every world with the action found in the shared arrays

Observations, actions, rewards and costs travel through shared memory. An exception is answered with its traceback, and
the process ends.
"""

import base64
import faulthandler
import importlib
import json
import mmap
import os
import pickle
import sys
import traceback

import numpy as np


def resolve(path):
    """The object that ``module:name`` names."""
    module, _, name = path.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def maker(name):
    """A function that makes the environment ``Id-v0``, ``module:Id-v0`` or ``module:Class``."""
    module_name, _, ident = name.rpartition(":")
    module = importlib.import_module(module_name) if module_name else None
    if module is not None and "." not in ident and hasattr(module, ident):
        return getattr(module, ident)
    if module is not None and callable(getattr(module, "make", None)):  # safety_gymnasium has wrappers of its own
        return lambda: module.make(ident)
    package = _gymnasium()
    # The checker warns about style, costs time, and knows nothing of a sixth value.
    return lambda: package.make(name, disable_env_checker=True)


def _gymnasium():
    try:
        return importlib.import_module("gymnasium")
    except ImportError:
        return importlib.import_module("gym")


class Observations:
    """One array of float32 from whatever an environment shows: images keep their shape, all else becomes a vector."""

    def __init__(self, space):
        box = type(space).__name__ == "Box"
        self.space = space
        self.image = box and len(space.shape) == 3
        self.scale = 1.0 / 255.0 if self.image and space.dtype == np.uint8 else None
        self.plain = box and len(space.shape) == 1
        self.flatten = None
        if box:
            self.shape = tuple(space.shape) if self.image else (int(np.prod(space.shape)),)
        else:
            spaces = _gymnasium().spaces.utils
            self.flatten, self.shape = spaces.flatten, tuple(spaces.flatten_space(space).shape)

    def __call__(self, obs):
        if self.plain:
            return obs
        if self.scale is not None:
            return np.asarray(obs, np.float32) * self.scale
        if self.flatten is not None:
            return np.asarray(self.flatten(self.space, obs), np.float32)
        return np.asarray(obs, np.float32).reshape(self.shape)


class Actions:
    """From a row of the shared array to what the environment's action space holds."""

    def __init__(self, space):
        self.kind = type(space).__name__
        self.space = space
        if self.kind == "Box":
            if not np.issubdtype(space.dtype, np.floating):
                raise TypeError(f"actions are a Box of {space.dtype}; a Box of floats is needed")
            low, high = np.ravel(space.low).astype(float), np.ravel(space.high).astype(float)
            self.description = {"kind": "Box", "low": low.tolist(), "high": high.tolist()}
        elif self.kind == "Discrete":
            self.start = int(getattr(space, "start", 0))
            self.description = {"kind": "Discrete", "n": int(space.n)}
        elif self.kind in ("MultiDiscrete", "MultiBinary"):
            binary = self.kind == "MultiBinary"
            sizes = np.full(space.shape, 2) if binary else space.nvec
            self.start = 0 if binary else np.asarray(getattr(space, "start", 0))
            self.description = {"kind": "MultiDiscrete", "sizes": [int(n) for n in np.ravel(sizes)]}
        else:
            raise TypeError(f"actions are a {self.kind}; Box, Discrete, MultiDiscrete or MultiBinary is needed")

    def __call__(self, row):
        if self.kind == "Box":
            action = np.array(row, self.space.dtype).reshape(self.space.shape)
            # Rounding to float32 on the way may overstep a bound by one unit in the last place.
            return np.clip(action, self.space.low, self.space.high)
        if self.kind == "Discrete":
            return int(row) + self.start
        return np.array(row, self.space.dtype).reshape(self.space.shape) + self.start


class World:
    """One environment with its cost."""

    def __init__(self, env, cost, cost_keys, episode_length):
        self.env, self.cost, self.cost_keys = env, cost, cost_keys
        self.see, self.read = Observations(env.observation_space), Actions(env.action_space)
        self.episode_length = episode_length  # imposed by us; None: the environment's own business
        self.left = None  # steps until we cut the episode
        self.raw = None  # what the environment itself returned last

    def reset(self, seed=None, left=None):
        """Start an episode; ``left`` cuts this one after so many steps, so that worlds do not all end at once."""
        try:
            result = self.env.reset(seed=seed) if seed is not None else self.env.reset()
        except TypeError:  # old gym: seeds are set apart
            if seed is not None:
                self.env.seed(seed)
            result = self.env.reset()
        self.raw = result[0] if isinstance(result, tuple) and len(result) == 2 else result
        self.left = left or self.episode_length
        return self.see(self.raw)

    def step(self, row):
        action = self.read(row)
        before, result = self.raw, self.env.step(action)
        if len(result) == 6:  # safety-gymnasium
            self.raw, reward, cost, terminated, truncated, info = result
        elif len(result) == 5:
            self.raw, reward, terminated, truncated, info = result
            cost = None
        else:  # old gym
            self.raw, reward, done, info = result
            cost, truncated = None, bool(info.get("TimeLimit.truncated", False))
            terminated = done and not truncated
        cost = self.price(before, action, cost, info)
        if self.left is not None:
            self.left -= 1
            truncated = truncated or self.left <= 0
        return self.see(self.raw), reward, cost, bool(terminated), bool(truncated and not terminated)

    def price(self, before, action, cost, info):
        if self.cost is not None:
            return self.cost(before, action, self.raw, info)
        if self.cost_keys or cost is None:
            keys = self.cost_keys or ["cost"]
            if any(key not in info for key in keys):
                raise KeyError(
                    f"info has no {' or no '.join(keys)} (it has: {', '.join(map(str, info)) or 'nothing'}). Name the "
                    "keys that hold costs (--cost-keys a,b), or give a function (--cost module:function)."
                )
            return [info[key] for key in keys] if self.cost_keys else info["cost"]
        return cost


def time_limit(env):
    """Steps after which the environment's own wrapper truncates an episode; None where it has none."""
    while env is not None:
        limit = getattr(env, "_max_episode_steps", None)
        if limit is not None:
            return int(limit)
        spec = getattr(env, "spec", None)
        limit = getattr(spec, "max_episode_steps", None)
        if limit is not None:
            return int(limit)
        env = env.__dict__.get("env")
    return None


class Server:
    """The worlds of this process and the arrays that it shares with its parent."""

    def __init__(self, setup):
        for entry in setup["path"]:
            if entry not in sys.path:
                sys.path.append(entry)
        make, cost = setup["make"], setup["cost"]
        if setup["pickled"] is not None:
            make, cost = pickle.loads(base64.b64decode(setup["pickled"]))
        self.make = maker(make) if isinstance(make, str) else make
        self.cost = resolve(cost) if isinstance(cost, str) else cost
        self.cost_keys, self.episode_length = setup["cost_keys"], setup["episode_length"]
        self.worlds = [self.world()]

    def world(self):
        return World(self.make(), self.cost, self.cost_keys, self.episode_length)

    def describe(self):
        """What a learner must know; one step tells how many costs there are."""
        world = self.worlds[0]
        world.reset(seed=0)
        action = world.env.action_space.sample()
        start = getattr(world.read, "start", 0)
        _, _, cost, _, _ = world.step(np.ravel(action - start) if world.read.kind != "Discrete" else action - start)
        return {
            "obs_shape": world.see.shape,
            "action": world.read.description,
            "num_costs": int(np.size(cost)),
            "scalar_cost": bool(np.ndim(cost) == 0),
            "episode_length": self.episode_length or time_limit(world.env),
        }

    def attach(self, command):
        first, last = command["attach"]
        while len(self.worlds) < last - first:
            self.worlds.append(self.world())
        with open(command["file"], "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        arrays = {}
        for name, dtype, shape, offset in command["layout"]:
            count = int(np.prod(shape))
            arrays[name] = np.frombuffer(self.memory, dtype, count, offset).reshape(shape)[first:last]
        self.action, self.obs, self.final_obs = arrays["action"], arrays["obs"], arrays["final_obs"]
        self.reward, self.costs = arrays["reward"], arrays["cost"]
        self.terminated, self.truncated = arrays["terminated"], arrays["truncated"]
        self.reset(command)

    def reset(self, command):
        for i, world in enumerate(self.worlds):
            self.obs[i] = world.reset(command["seeds"][i], command["left"][i])

    def step(self):
        for i, world in enumerate(self.worlds):
            obs, self.reward[i], self.costs[i], terminated, truncated = world.step(self.action[i])
            self.terminated[i], self.truncated[i] = terminated, truncated
            if terminated or truncated:
                self.final_obs[i] = obs
                obs = world.reset()
            self.obs[i] = obs


def serve(commands, replies):
    setup = json.loads(commands.readline())
    server = Server(setup)
    replies.write(json.dumps(server.describe()).encode() + b"\n")
    for line in iter(commands.readline, b""):
        if line == b"s\n":
            server.step()
        else:
            command = json.loads(line)
            server.attach(command) if "attach" in command else server.reset(command)
        replies.write(b"s\n")


def main():
    commands, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", 0)
    # What an environment reads or prints must not be mistaken for a command or an answer.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    faulthandler.enable()  # a crash in compiled code leaves a traceback, too
    try:
        serve(commands, replies)
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the parent is gone or going
    except BaseException:
        replies.write(json.dumps({"error": traceback.format_exc()}).encode() + b"\n")


if __name__ == "__main__":
    main()
