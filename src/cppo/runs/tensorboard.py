"""TensorBoard files: a view of a run's metrics, in one file for each seed and start.

Written as they come, without tensorboardX's queue and thread: where the disk is full that thread dies, and the next
flush waits for it for ever. A view stops no training: a file that fails is left, and another one begun.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cppo import files

Row = dict[str, Any]

_POSITION = ("iteration", "steps", "seed")  # where a row belongs; not quantities to draw


class EventFiles:
    """``kept`` are the rows that a resumed run goes on from; None in a new one."""

    def __init__(self, folder: Path, kept: list[Row] | None):
        self._folder = folder
        # TensorBoard hides what an earlier part of the run logged at or after the purge step.
        self._purge_steps = None if kept is None else {row["seed"]: row["steps"] + 1 for row in kept}
        self._files: dict[int, Any] = {}
        self._begun: set[int] = set()

    def write(self, row: Row) -> None:
        """Rows may be missing from the time when the disk had no room; ``metrics.jsonl`` has them all."""
        # What protobuf makes at run time has no declarations.
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        scalars = [
            Summary.Value(tag=name, simple_value=float(value))
            for name, value in row.items()
            if name not in _POSITION and isinstance(value, int | float)
        ]
        event = Event(wall_time=time.time(), step=row["steps"], summary=Summary(value=scalars))
        try:
            self._file(row["seed"]).write_event(event)
        except OSError:
            self._drop(row["seed"])

    def flush(self) -> None:
        for seed in list(self._files):
            try:
                self._files[seed].flush()
            except OSError:
                self._drop(seed)

    def close(self) -> None:
        for seed in list(self._files):
            self._drop(seed)

    def _file(self, seed: int) -> Any:
        if seed not in self._files:
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]

            folder = files.subfolder(files.subfolder(self._folder, "tensorboard"), f"seed{seed}")
            # Event files are named by the second; a quick resume must not overwrite the file it goes on from.
            self._files[seed] = file = EventsWriter(str(folder / "events"), f".{time.time_ns()}")
            if self._purge_steps is not None and seed not in self._begun:
                step, start = self._purge_steps.get(seed, 0), SessionLog(status=SessionLog.START)
                file.write_event(Event(wall_time=time.time(), step=step, session_log=start))
            self._begun.add(seed)
        return self._files[seed]

    def _drop(self, seed: int) -> None:
        with suppress(OSError):
            if seed in self._files:
                self._files.pop(seed).close()
