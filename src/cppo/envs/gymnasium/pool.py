"""Processes that hold the worlds of a Gymnasium environment: started, fed by shared memory, restarted when they die.

Each process steps several worlds (``gym_world.py``). What travels for every step is one short line in each direction;
arrays lie in a file that all sides map. A process that crashes, raises or hangs is killed and replaced; after
``RETRIES`` failures without one finished episode in between, the environment's own traceback ends the run.
"""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cppo.types import TrainingError

log = logging.getLogger("cppo.envs")

WORLD = Path(__file__).with_name("gym_world.py")
# Run by path but with the working directory, not this package, in front of the module search path.
COMMAND = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
RETRIES = 3
START_SECONDS = 300.0  # imports and model compilation may take long
STEPPED = b"s\n"


class Failure(Exception):
    """A process died, raised or hung: the reason in a line, and what it left."""

    def __init__(self, reason: str, left: str):
        super().__init__(f"{reason}\n{left}".strip())
        self.reason, self.left = reason, left


class Process:
    """One child with its two pipes. ``description`` is what its environment is like."""

    def __init__(self, python: str, setup: dict[str, Any], folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=folder, suffix=".stderr")
        self._errors = Path(name)
        # Many processes with many threads each would fight for the cores; a GPU belongs to the learner.
        quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        with os.fdopen(number, "wb") as errors:
            self._child = subprocess.Popen(
                [python, "-c", COMMAND, str(WORLD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env=quiet | dict(os.environ),
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        self._in, self._out = self._child.stdin.fileno(), self._child.stdout.fileno()  # type: ignore[union-attr]
        self._ready = select.poll()
        self._ready.register(self._out, select.POLLIN | select.POLLHUP)
        self.send(json.dumps(setup).encode() + b"\n")

    def send(self, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # noticed, with its reason, when the answer is awaited
            while line:
                line = line[os.write(self._in, line) :]

    def receive(self, deadline: float) -> bytes:
        """The next line, or a ``Failure`` that says why there is none."""
        got = b""
        while not got.endswith(b"\n"):
            if not self._ready.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
                raise Failure("it did not answer in time and was stopped.", self._stop_and_tell())
            part = os.read(self._out, 1 << 16)
            if not part:
                raise Failure(f"its process ended by itself{self._how_it_ended()}.", self.said())
            got += part
        if got.startswith(b'{"error"'):
            text = json.loads(got)["error"].strip()
            raise Failure(text.splitlines()[-1], text)
        return got

    def said(self) -> str:
        """The last lines that the child wrote on its standard error."""
        try:
            return "\n".join(self._errors.read_text(errors="replace").splitlines()[-40:])
        except OSError:
            return ""

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            pipe.close()  # type: ignore[union-attr]
        self._errors.unlink(missing_ok=True)

    def _stop_and_tell(self) -> str:
        """Where a hanging child was: aborting makes its fault handler write a traceback."""
        self._child.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(2.0)
        return self.said()

    def _how_it_ended(self) -> str:
        code = self._child.wait()
        return f" with exit code {code}" if code >= 0 else f" by signal {signal.Signals(-code).name}"


class Shared(NamedTuple):
    """The arrays of all worlds in a file that every process maps."""

    arrays: dict[str, np.ndarray]
    layout: list[tuple[str, str, tuple[int, ...], int]]
    file: Path


def share(folder: Path, wanted: list[tuple[str, str, tuple[int, ...]]]) -> Shared:
    """Arrays of the ``wanted`` names, types and shapes."""
    layout, offset = [], 0
    for name, dtype, shape in wanted:
        layout.append((name, dtype, shape, offset))
        offset += -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // 64) * 64
    file = folder / "arrays"
    file.write_bytes(b"\0" * max(offset, 64))
    with open(file, "r+b") as opened:
        memory = mmap.mmap(opened.fileno(), 0)
    arrays = {
        name: np.frombuffer(memory, dtype, int(np.prod(shape)), start).reshape(shape)
        for name, dtype, shape, start in layout
    }
    return Shared(arrays, layout, file)


class Stepped(NamedTuple):
    """Copies of what the worlds returned, all with leading axis world."""

    obs: np.ndarray
    final_obs: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    dropped: np.ndarray


class Pool:
    """``num_envs`` worlds spread evenly over ``workers`` processes."""

    def __init__(
        self,
        python: str,
        setup: dict[str, Any],
        num_envs: int,
        workers: int,
        timeout: float,
        obs_shape: tuple[int, ...],
        action_shape: tuple[int, ...],
        action_type: str,
        num_costs: int,
    ):
        self._python, self._setup, self._timeout = python, setup, timeout
        memory = Path("/dev/shm")
        self._folder = Path(tempfile.mkdtemp(prefix="cppo-", dir=memory if os.access(memory, os.W_OK) else None))
        self._clean = weakref.finalize(self, _clean_up, [], self._folder)
        edges = np.linspace(0, num_envs, min(workers, num_envs) + 1).astype(int)
        self._ranges = [(int(a), int(b)) for a, b in pairwise(edges)]
        wanted = [
            ("action", action_type, (num_envs, *action_shape)),
            ("obs", "float32", (num_envs, *obs_shape)),
            ("final_obs", "float32", (num_envs, *obs_shape)),
            ("reward", "float32", (num_envs,)),
            ("cost", "float32", (num_envs, num_costs)),
            ("terminated", "bool", (num_envs,)),
            ("truncated", "bool", (num_envs,)),
        ]
        self._shared = share(self._folder, wanted)
        self._failures = [0] * len(self._ranges)
        self._restarts = 0
        self._processes: list[Process] = []

    @property
    def processes(self) -> list[Process]:
        return self._processes

    def reset(self, seeds: list[int], left: list[int]) -> np.ndarray:
        """New episodes in all worlds; ``left``: after how many steps to cut the first one (0: not at all)."""
        self._seeds = seeds
        if not self._processes:
            self._processes = [Process(self._python, self._setup, self._folder) for _ in self._ranges]
            self._clean.detach()
            self._clean = weakref.finalize(self, _clean_up, self._processes, self._folder)
            try:
                self._attach(range(len(self._ranges)), seeds, left)
            except Failure as failure:
                self.close()
                raise TrainingError(f"the environment could not be started:\n{failure}") from None
            return np.array(self._shared.arrays["obs"])
        failed = []
        for process, (first, last) in zip(self._processes, self._ranges, strict=True):
            process.send(_line({"seeds": seeds[first:last], "left": left[first:last]}))
        deadline = time.monotonic() + START_SECONDS
        for index, process in enumerate(self._processes):
            try:
                process.receive(deadline)
            except Failure as failure:
                failed.append((index, failure))
        for index, failure in failed:
            self._replace(index, failure)
        return np.array(self._shared.arrays["obs"])

    def step(self, actions: np.ndarray) -> Stepped:
        """One step of all worlds. Rows of ``dropped`` lost their episode with their process and started a new one."""
        arrays = self._shared.arrays
        arrays["action"][:] = actions
        for process in self._processes:
            process.send(STEPPED)
        deadline = time.monotonic() + self._timeout
        failed = []
        before = None
        for index, process in enumerate(self._processes):
            try:
                process.receive(deadline)
            except Failure as failure:
                failed.append((index, failure))
        dropped = np.zeros(len(arrays["reward"]), bool)
        if failed:
            before = self._last_obs
            for index, failure in failed:
                self._replace(index, failure)
                first, last = self._ranges[index]
                dropped[first:last] = True
                arrays["final_obs"][first:last] = before[first:last]
                arrays["reward"][first:last], arrays["cost"][first:last] = 0.0, 0.0
                arrays["terminated"][first:last], arrays["truncated"][first:last] = False, True
        obs = np.array(arrays["obs"])
        terminated, truncated = np.array(arrays["terminated"]), np.array(arrays["truncated"])
        ended = terminated | truncated
        final_obs = obs
        if ended.any():
            final_obs = obs.copy()
            final_obs[ended] = arrays["final_obs"][ended]
            self._forgive(ended & ~dropped)
        self._last_obs = obs
        return Stepped(
            obs, final_obs, np.array(arrays["reward"]), np.array(arrays["cost"]), terminated, truncated, dropped
        )

    def close(self) -> None:
        self._clean()
        self._processes = []

    def _attach(self, indices: Any, seeds: list[int], left: list[int]) -> None:
        deadline = time.monotonic() + START_SECONDS
        for index in indices:
            self._processes[index].receive(deadline)  # its description, known already
            first, last = self._ranges[index]
            self._processes[index].send(
                _line(
                    {
                        "attach": [first, last],
                        "file": str(self._shared.file),
                        "layout": self._shared.layout,
                        "seeds": seeds[first:last],
                        "left": left[first:last],
                    }
                )
            )
        for index in indices:
            self._processes[index].receive(deadline)
        self._last_obs = np.array(self._shared.arrays["obs"])

    def _replace(self, index: int, failure: Failure) -> None:
        """A new process in place of a failed one, with other seeds; the episodes of its worlds are lost."""
        first, last = self._ranges[index]
        while True:
            self._failures[index] += 1
            self._restarts += 1
            self._processes[index].close()
            if self._failures[index] >= RETRIES:
                self.close()
                raise TrainingError(
                    f"the environment failed {RETRIES} times without finishing an episode. Last time: {failure}"
                )
            log.warning("worlds %d to %d are restarted, their episodes dropped: %s", first, last - 1, failure.reason)
            self._processes[index] = Process(self._python, self._setup, self._folder)
            seeds = [(seed + 7919 * self._restarts) % 2**31 for seed in self._seeds]
            try:
                self._attach([index], seeds, [0] * len(seeds))
                return
            except Failure as again:
                failure = again

    def _forgive(self, ended: np.ndarray) -> None:
        for index, (first, last) in enumerate(self._ranges):
            if self._failures[index] and ended[first:last].any():
                self._failures[index] = 0


def describe(python: str, setup: dict[str, Any]) -> dict[str, Any]:
    """What the environment is like, from a process that makes one and steps it once."""
    folder = Path(tempfile.mkdtemp(prefix="cppo-"))
    try:
        process = Process(python, setup, folder)
        try:
            return json.loads(process.receive(time.monotonic() + START_SECONDS))
        finally:
            process.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _line(command: dict[str, Any]) -> bytes:
    return json.dumps(command).encode() + b"\n"


def _clean_up(processes: list[Process], folder: Path) -> None:
    for process in processes:
        process.close()
    shutil.rmtree(folder, ignore_errors=True)
