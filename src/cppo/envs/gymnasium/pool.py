"""Processes that hold the worlds of a Gymnasium environment: started, fed by shared memory, restarted when they die.

Each process steps several worlds (``world.py``). What travels for every step is one short line in each direction;
arrays lie in memory that all sides map. A process that crashes, raises, hangs or returns what does not fit its spaces
is killed and replaced; after ``RETRIES`` failures without one finished episode in between, the environment's own
traceback ends the run.

Nothing outlives this process, however it dies: children end with it (``leash.py``), and files have no name.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import mmap
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from cppo.errors import E, TrainingError, UsageError, blame, own_lines
from cppo.types import LOST, Box, EnvSpec

log = logging.getLogger("cppo.envs")

LEASH, WORLD = (str(Path(__file__).with_name(name)) for name in ("leash.py", "world.py"))
# Python looks for modules in the working directory first, even for its own; here only where world.py is told to.
NOT_FROM_HERE = "import sys; sys.path[:] = [entry for entry in sys.path if entry]; "
# Run by path but without this package in front of the module search path.
COMMAND = NOT_FROM_HERE + "import runpy; [runpy.run_path(path, run_name='__main__') for path in sys.argv[1:3]]"
RETRIES = 3
START_SECONDS = 300.0  # imports and model compilation may take long
STEPPED = b"s\n"
PICTURE = b"p\n"
TAIL = 1 << 15  # bytes of a child's standard error that are worth reading


class Failure(Exception):
    """A process died, raised or hung: of which kind (``LOST``), the reason in a line, and what it left."""

    def __init__(self, kind: str, reason: str, left: str, known: bool = False):
        super().__init__(f"{reason}\n{left}".strip())
        self.kind, self.reason, self.left, self.known = kind, reason, left, known

    def told(self, what: str, kind: type[E]) -> E:
        """The error for a person: one line, and of what the process left the lines of the user's own files."""
        advice = "Mend it; --debug shows the whole traceback." if own_lines(self.left) and not self.known else ""
        reason = self.reason if self.known or "Traceback" not in self.left else None
        return blame(what, self.left, advice, kind, reason)


class Process:
    """One child with its two pipes. ``description`` is what its environment is like."""

    def __init__(self, python: str, setup: dict[str, Any], memory: IO[bytes] | None = None):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process is)
        by_kernel = threading.current_thread() is threading.main_thread()  # no other is sure to live as long as we do
        # Many processes with many threads each would fight for the cores; a GPU belongs to the learner.
        quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        self._child = subprocess.Popen(
            [python, "-c", COMMAND, LEASH, WORLD, "kernel" if by_kernel else "pipe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=quiet | dict(os.environ),
            pass_fds=() if memory is None else (memory.fileno(),),
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        assert self._child.stdin is not None and self._child.stdout is not None  # asked for above
        self._pipes = self._child.stdin, self._child.stdout
        self._in, self._out = (pipe.fileno() for pipe in self._pipes)
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
                raise Failure("hang", "it did not answer in time and was stopped.", self._stop_and_tell())
            part = os.read(self._out, 1 << 16)
            if not part:
                raise Failure("crash", f"its process ended by itself{self._how_it_ended()}.", self.said())
            got += part
        if got.startswith(b'{"error"'):
            answer = json.loads(got)
            text, mistake = answer["error"].strip(), answer["mistake"]
            raise Failure(answer["kind"], mistake or text.splitlines()[-1], text, mistake is not None)
        return got

    def said(self) -> str:
        """The last lines that the child wrote on its standard error."""
        number = self._errors.fileno()
        end = os.fstat(number).st_size
        # Not by reading the file, which would move the place where the child writes.
        text = os.pread(number, TAIL, max(0, end - TAIL)).decode(errors="replace")
        return "\n".join(text.splitlines()[-40:])

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()
        self._child.wait()
        for pipe in (*self._pipes, self._errors):
            pipe.close()

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
    """The arrays of all worlds in a file that every process maps. It has no name: children inherit it."""

    arrays: dict[str, np.ndarray]
    layout: list[tuple[str, str, tuple[int, ...], int]]
    file: IO[bytes]


def share(wanted: list[tuple[str, str, tuple[int, ...]]]) -> Shared:
    """Arrays of the ``wanted`` names, types and shapes, in memory where there is a folder for that."""
    layout, offset = [], 0
    for name, dtype, shape in wanted:
        layout.append((name, dtype, shape, offset))
        offset += -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // 64) * 64
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open as long as the arrays are)
    try:
        file.write(b"\0" * max(offset, 64))
        file.flush()
    except OSError as error:
        words = f"no room for {offset:,} bytes of shared memory ({error.strerror}); use fewer worlds"
        raise UsageError(f"{words}, for example --set num_envs=8.") from None
    memory = mmap.mmap(file.fileno(), 0)
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
    dropped: np.ndarray  # 0, or 1 + the index in LOST
    measures: np.ndarray | None


class Pool:
    """``num_envs`` worlds spread evenly over ``workers`` processes."""

    def __init__(self, python: str, setup: dict[str, Any], spec: EnvSpec, num_envs: int, workers: int, timeout: float):
        self._python, self._setup, self._timeout = python, setup, timeout
        edges = np.linspace(0, num_envs, min(workers, num_envs) + 1).astype(int)
        self._ranges = [(int(a), int(b)) for a, b in pairwise(edges)]
        wanted = [
            ("action", "float32" if isinstance(spec.action, Box) else "int64", (num_envs, *spec.action.shape)),
            ("obs", "float32", (num_envs, *spec.obs_shape)),
            ("final_obs", "float32", (num_envs, *spec.obs_shape)),
            ("reward", "float32", (num_envs,)),
            ("cost", "float32", (num_envs, spec.num_costs)),
            ("terminated", "bool", (num_envs,)),
            ("truncated", "bool", (num_envs,)),
        ]
        wanted += [("measures", "float32", (num_envs, len(spec.measures)))] if spec.measures else []
        self._shared = share(wanted)
        self._failures = [0] * len(self._ranges)
        self._restarts = 0
        self.processes: list[Process] = []
        self._clean = weakref.finalize(self, _close, self.processes)
        self.last_failure: Failure | None = None

    def reset(self, seeds: list[int], left: list[int]) -> np.ndarray:
        """New episodes in all worlds; ``left``: after how many steps to cut the first one (0: not at all)."""
        self._seeds = seeds
        if not self.processes:
            for _ in self._ranges:
                self.processes.append(self._process())
            try:
                self._attach(range(len(self._ranges)), seeds, left)
            except Failure as failure:
                self.close()
                raise failure.told("the environment could not be started", TrainingError) from failure
            return np.array(self._shared.arrays["obs"])
        failed = []
        for process, (first, last) in zip(self.processes, self._ranges, strict=True):
            process.send(_line({"seeds": seeds[first:last], "left": left[first:last]}))
        deadline = time.monotonic() + START_SECONDS
        for index, process in enumerate(self.processes):
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
        for process in self.processes:
            process.send(STEPPED)
        deadline = time.monotonic() + self._timeout
        failed = []
        before = None
        for index, process in enumerate(self.processes):
            try:
                process.receive(deadline)
            except Failure as failure:
                failed.append((index, failure))
        dropped = np.zeros(len(arrays["reward"]), np.uint8)
        if failed:
            before = self._last_obs
            for index, failure in failed:
                self._replace(index, failure)
                first, last = self._ranges[index]
                dropped[first:last] = 1 + LOST.index(failure.kind)
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
            self._forgive(ended & (dropped == 0))
        self._last_obs = obs
        reward, cost = np.array(arrays["reward"]), np.array(arrays["cost"])
        said = np.array(arrays["measures"]) if "measures" in arrays else None
        return Stepped(obs, final_obs, reward, cost, terminated, truncated, dropped, said)

    def picture(self) -> tuple[np.ndarray, float]:
        """The first world as (height, width, 3) bytes, and how many such make a second."""
        self.processes[0].send(PICTURE)
        try:
            said = json.loads(self.processes[0].receive(time.monotonic() + START_SECONDS))
        except Failure as failure:
            self.close()
            raise failure.told("no film of this environment", UsageError) from failure
        pixels = np.frombuffer(base64.b64decode(said["pixels"]), np.uint8)
        return pixels.reshape(said["shape"]), said["rate"]

    def close(self) -> None:
        _close(self.processes)

    def _process(self) -> Process:
        return Process(self._python, self._setup, self._shared.file)

    def _attach(self, indices: Any, seeds: list[int], left: list[int]) -> None:
        deadline = time.monotonic() + START_SECONDS
        for index in indices:
            self.processes[index].receive(deadline)  # its description, known already
            first, last = self._ranges[index]
            self.processes[index].send(
                _line(
                    {
                        "attach": [first, last],
                        "file": self._shared.file.fileno(),
                        "layout": self._shared.layout,
                        "seeds": seeds[first:last],
                        "left": left[first:last],
                    }
                )
            )
        for index in indices:
            self.processes[index].receive(deadline)
        self._last_obs = np.array(self._shared.arrays["obs"])

    def _replace(self, index: int, failure: Failure) -> None:
        """A new process in place of a failed one, with other seeds; the episodes of its worlds are lost."""
        first, last = self._ranges[index]
        while True:
            self._failures[index] += 1
            self._restarts += 1
            self.last_failure = failure
            self.processes[index].close()
            if self._failures[index] >= RETRIES:
                self.close()
                what = f"the environment failed {RETRIES} times without finishing an episode; the last time"
                raise failure.told(what, TrainingError) from failure
            log.warning("worlds %d to %d are restarted, their episodes dropped: %s", first, last - 1, failure.reason)
            self.processes[index] = self._process()
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
    process = Process(python, setup)
    try:
        return json.loads(process.receive(time.monotonic() + START_SECONDS))
    finally:
        process.close()


def _line(command: dict[str, Any]) -> bytes:
    return json.dumps(command).encode() + b"\n"


def _close(processes: list[Process]) -> None:
    while processes:
        processes.pop().close()
