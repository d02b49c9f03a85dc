"""Worlds of somebody's Gymnasium environment, in a process of their own.

It needs ``making.py`` beside it, the standard library, NumPy (1.x or 2.x), Python 3.8 or newer and the environment's
own packages, nothing of cppo. Commands arrive on standard input and are answered on standard output, one line each:

    {"make": ..., ...}   JSON: import the environment, make one, say what it is like (JSON)
    {"attach": ...}      JSON: map the shared arrays, make the worlds, reset them
    {"seeds": ...}       JSON: reset every world
    s                    step every world with the action found in the shared arrays
    p                    the picture of the first world (JSON), where the setup says "pictures"

Observations, actions, rewards and costs travel through shared memory. What the environment returns must fit the spaces
that it declares, or NumPy would broadcast it into something else. An exception is answered with its traceback, a
``Mistake`` with a sentence for the user as well, and the process ends.
"""

from __future__ import annotations

import base64
import faulthandler
import importlib.util
import json
import mmap
import os
import pickle
import sys
import traceback
from typing import IO, Any, Callable  # noqa: UP035 (Python 3.8 knows no other)

import numpy as np


def _beside(name: str) -> Any:
    """The module that lies beside this file, which also runs under interpreters that know no cppo."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"cppo_{name}", path)
    assert spec is not None and spec.loader is not None  # the file is there
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


making = _beside("making")


class Observations:
    """One array of float32 from whatever an environment shows: images keep their shape, all else becomes a vector."""

    def __init__(self, space: Any):
        box = type(space).__name__ == "Box"
        self.space = space
        self.image = box and len(space.shape) == 3
        self.scale = 1.0 / 255.0 if self.image and space.dtype == np.uint8 else None
        self.plain = box and len(space.shape) == 1
        self.flatten = None
        self.fitting = set()  # (shape, dtype) seen before: checking costs a step less than a microsecond then
        if box:
            self.shape = tuple(space.shape) if self.image else (int(np.prod(space.shape)),)
        else:
            spaces = making.gymnasium().spaces.utils
            self.flatten, self.shape = spaces.flatten, tuple(spaces.flatten_space(space).shape)

    def __call__(self, obs: Any) -> np.ndarray:
        if self.flatten is not None:
            making.fits(self.space, obs, "the observation")
            return np.asarray(self.flatten(self.space, obs), np.float32)
        obs = np.asarray(obs)
        if (obs.shape, obs.dtype) not in self.fitting:
            making.fits(self.space, obs, "the observation")
            self.fitting.add((obs.shape, obs.dtype))
        if self.plain:
            return obs
        if self.scale is not None:
            return np.asarray(obs, np.float32) * self.scale
        return np.asarray(obs, np.float32).reshape(self.shape)


class Actions:
    """From a row of the shared array to what the environment's action space holds."""

    def __init__(self, space: Any):
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

    def __call__(self, row: np.ndarray) -> Any:
        if self.kind == "Box":
            action = np.array(row, self.space.dtype).reshape(self.space.shape)
            # Rounding to float32 on the way may overstep a bound by one unit in the last place.
            return np.clip(action, self.space.low, self.space.high)
        if self.kind == "Discrete":
            return int(row) + self.start
        return np.array(row, self.space.dtype).reshape(self.space.shape) + self.start


class World:
    """One environment with its cost."""

    def __init__(
        self,
        env: Any,
        cost: Callable[..., Any] | None,
        cost_keys: list[str] | None,
        episode_length: int | None,
        measures: Any = (),
    ):
        self.env, self.cost, self.cost_keys, self.measures = env, cost, cost_keys, measures
        for part in ("observation_space", "action_space", "reset", "step"):
            if not hasattr(env, part):
                raise making.Mistake(f"it is a {type(env).__name__} without {part}, no Gymnasium environment.")
        self.see, self.read = Observations(env.observation_space), Actions(env.action_space)
        self.episode_length = episode_length  # imposed by us; None: the environment's own business
        self.costs = None  # how many a step has, once that is known
        self.left = None  # steps until we cut the episode
        self.raw = None  # what the environment itself returned last

    def reset(self, seed: int | None = None, left: int | None = None) -> np.ndarray:
        """Start an episode; ``left`` cuts this one after so many steps, so that worlds do not all end at once."""
        try:
            result = self.env.reset(seed=seed) if seed is not None else self.env.reset()
        except TypeError:  # old gym: seeds are set apart
            if seed is not None:
                self.env.seed(seed)
            result = self.env.reset()
        self.raw = result[0] if isinstance(result, tuple) and len(result) == 2 else result
        self.left = left or self.episode_length
        # Of an episode that we cut short, not all would be known.
        self.said = [float("nan") if left or rule != "sum" else 0.0 for _, rule in self.measures]
        self.whole = not left
        return self.see(self.raw)

    def step(self, row: np.ndarray) -> tuple[np.ndarray, Any, Any, bool, bool]:
        action = self.read(row)
        before, result = self.raw, self.env.step(action)
        if not isinstance(result, tuple) or len(result) not in (4, 5, 6):
            what = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
            raise making.Mistake(f"step returns {what}; it must return (obs, reward, terminated, truncated, info).")
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
        making.number(reward, "step returns the reward", 1)
        making.number(cost, "the cost function returns" if self.cost is not None else "the cost is", self.costs)
        making.number(terminated, "step returns terminated", 1)
        making.number(truncated, "step returns truncated", 1)
        if self.measures and self.whole:
            self.note(info)
        if self.left is not None:
            self.left -= 1
            truncated = truncated or self.left <= 0
        return self.see(self.raw), reward, cost, bool(terminated), bool(truncated and not terminated)

    def decide(self, row: np.ndarray, hold: int) -> tuple[np.ndarray, Any, Any, bool, bool]:
        """The action for ``hold`` steps, or until the episode ends; rewards and costs are summed."""
        obs, reward, cost, terminated, truncated = self.step(row)
        for _ in range(hold - 1):
            if terminated or truncated:
                break
            obs, more, more_cost, terminated, truncated = self.step(row)
            reward, cost = np.add(reward, more), np.add(cost, more_cost)
        return obs, reward, cost, terminated, truncated

    def note(self, info: Any) -> None:
        """Take in what ``info`` says of the episode; a key may be missing."""
        for i, (key, rule) in enumerate(self.measures):
            if key in info:
                making.number(info[key], f"info[{key!r}] is", 1)
                value, before = float(np.ravel(info[key])[0]), self.said[i]
                if rule == "sum":
                    value += before
                elif rule == "max" and before > value:  # not so of NaN
                    value = before
                self.said[i] = value

    def price(self, before: Any, action: Any, cost: Any, info: Any) -> Any:
        if self.cost is not None:
            return self.cost(before, action, self.raw, info)
        if self.cost_keys or cost is None:
            keys = self.cost_keys or ["cost"]
            if any(key not in info for key in keys):
                raise making.Mistake(
                    f"info has no {' or no '.join(keys)} (it has: {', '.join(map(str, info)) or 'nothing'}). Name the "
                    "keys that hold costs (--cost-keys a,b), or give a function (--cost module:function)."
                )
            return [info[key] for key in keys] if self.cost_keys else info["cost"]
        return cost


def time_limit(env: Any) -> int | None:
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

    def __init__(self, setup: dict[str, Any]):
        if setup["place"] is not None and setup["place"] not in sys.path:
            sys.path.insert(0, setup["place"])
        for entry in setup["path"]:
            if entry not in sys.path:
                sys.path.append(entry)
        make, cost = setup["make"], setup["cost"]
        if setup["pickled"] is not None:
            make, cost = pickle.loads(base64.b64decode(setup["pickled"]))
        self.make = making.maker(make) if isinstance(make, str) else make
        if setup.get("pictures"):
            self.make = making.drawing(self.make)
        self.cost = making.resolve(cost) if isinstance(cost, str) else cost
        self.cost_keys, self.episode_length = setup["cost_keys"], setup["episode_length"]
        self.noted, self.hold = setup["measures"], setup.get("hold", 1)
        self.worlds = [self.world()]

    def world(self) -> World:
        return World(making.made(self.make), self.cost, self.cost_keys, self.episode_length, self.noted)

    def describe(self) -> dict[str, Any]:
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

    def picture(self) -> dict[str, Any]:
        """What the first world looks like, and how many pictures make a second."""
        env = self.worlds[0].env
        mode = getattr(env, "render_mode", None)
        seen = env.render() if mode == "rgb_array" else None
        if not isinstance(seen, np.ndarray) or seen.ndim != 3 or seen.shape[2] != 3:
            found = (
                f"render() returns a {type(seen).__name__}" if mode == "rgb_array" else f"its render_mode is {mode!r}"
            )
            raise making.Mistake(
                f"{found}: it draws no pictures. It must take render_mode='rgb_array' when it is made, and return an "
                "array (height, width, 3) from render()."
            )
        pixels = np.ascontiguousarray(seen, np.uint8)
        rate = (getattr(env, "metadata", None) or {}).get("render_fps") or 30
        return {"shape": pixels.shape, "rate": float(rate), "pixels": base64.b64encode(pixels.tobytes()).decode()}

    def attach(self, command: dict[str, Any]) -> None:
        first, last = command["attach"]
        while len(self.worlds) < last - first:
            self.worlds.append(self.world())
        self.memory = mmap.mmap(command["file"], 0)  # inherited from the parent: it has no name that could be left
        arrays = {}
        for name, dtype, shape, offset in command["layout"]:
            count = int(np.prod(shape))
            arrays[name] = np.frombuffer(self.memory, dtype, count, offset).reshape(shape)[first:last]
        self.action, self.obs, self.final_obs = arrays["action"], arrays["obs"], arrays["final_obs"]
        self.reward, self.costs = arrays["reward"], arrays["cost"]
        self.terminated, self.truncated = arrays["terminated"], arrays["truncated"]
        self.measures = arrays.get("measures")
        for world in self.worlds:
            world.costs = self.costs.shape[1]
        self.reset(command)

    def reset(self, command: dict[str, Any]) -> None:
        for i, world in enumerate(self.worlds):
            self.obs[i] = world.reset(command["seeds"][i], command["left"][i])

    def step(self) -> None:
        for i, world in enumerate(self.worlds):
            obs, self.reward[i], self.costs[i], terminated, truncated = world.decide(self.action[i], self.hold)
            self.terminated[i], self.truncated[i] = terminated, truncated
            if self.measures is not None:
                self.measures[i] = world.said
            if terminated or truncated:
                self.final_obs[i] = obs
                obs = world.reset()
            self.obs[i] = obs


def serve(commands: IO[bytes], replies: IO[bytes]) -> None:
    setup = json.loads(commands.readline())
    server = Server(setup)
    replies.write(json.dumps(server.describe()).encode() + b"\n")
    for line in iter(commands.readline, b""):
        if line == b"s\n":
            server.step()
        elif line == b"p\n":
            replies.write(json.dumps(server.picture()).encode() + b"\n")
            continue
        else:
            command = json.loads(line)
            server.attach(command) if "attach" in command else server.reset(command)
        replies.write(b"s\n")


def main() -> None:
    commands, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", 0)
    # What an environment reads or prints must not be mistaken for a command or an answer.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    faulthandler.enable()  # a crash in compiled code leaves a traceback, too
    try:
        serve(commands, replies)
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the parent is gone or going
    except BaseException as error:
        mistake = str(error) if isinstance(error, making.Mistake) else None
        kind = "shape" if isinstance(error, making.Mismatch) else "exception"
        answer = {"error": traceback.format_exc(), "kind": kind, "mistake": mistake}
        replies.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
