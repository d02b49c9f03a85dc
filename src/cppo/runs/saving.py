"""A run's state on disk: checkpoints, and beside them the replay of off-policy methods in files of its own.

A replay is far larger than all the rest and changes little between two checkpoints. So each save writes only the steps
added since the last one, as a *segment* ``replay-ITERATION-CHECKSUM.safetensors``, never changed afterwards; the
checkpoint names the segments, with their checksums, that together are its replay. A segment is complete on disk before
the checkpoint that names it, and is removed only once no kept checkpoint names it: a kill at any moment leaves every
checkpoint with the replay that it had.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from cppo import files
from cppo.maths.replay_buffer import Replay, Transitions
from cppo.runs import checkpoint, sealed
from cppo.runs.checkpoint import BEST, CheckpointError, Unusable
from cppo.runs.evaluation import Best
from cppo.types import PyTree, UsageError

_BEST = "best."  # names of arrays in a checkpoint
LATER = "host_env.tally"  # what earlier versions did not save: unknown until the episode ends
GONE = ("agent.extra.average", "agent.extra.pressure", "agent.extra.calibration.")  # what only they saved, for CPPO
Segment = dict[str, Any]  # file, sha256, count (steps in it, of each lane), added (steps ever added, by lane)


class Saver:
    """Saves and restores the states of one run, in order; remembers which segments are on disk already."""

    def __init__(self, folder: Path, keep: int = 3):
        self.folder, self.keep = Path(folder), keep
        self.best: Best | None = None
        self._written: Any = None  # records in ``BEST``
        self._segments: list[Segment] = []

    def save(self, iteration: int, state: PyTree, meta: dict[str, Any]) -> Path:
        path = self._save(iteration, state, meta)
        if self.best is not None:
            self.show_best()
        return path

    def _save(self, iteration: int, state: PyTree, meta: dict[str, Any]) -> Path:
        replay = _replay(state)
        if self.best is not None:
            state, meta = state._asdict() | {"best": self.best.agents}, meta | {"best": self.best.records}
        if replay is None:
            return checkpoint.save(self.folder, iteration, state, meta, self.keep)
        self._segments = _append(self.folder, iteration, replay, self._segments)
        meta = meta | {"replay": self._segments}
        path = checkpoint.save(self.folder, iteration, without_replay(state), meta, self.keep)
        _remove_unnamed(self.folder)
        return path

    def load(self, like: PyTree, name: str | None = None) -> tuple[PyTree, dict[str, Any]]:
        """The state of the newest checkpoint, or the one called ``name``, in the structure of ``like``; its meta."""
        path = checkpoint.latest(self.folder) if name is None else files.inside(self.folder, name)
        arrays, meta = checkpoint.load(path)
        self._take_best({name: arrays.pop(name) for name in list(arrays) if name.startswith(_BEST)}, meta, like)
        blank = checkpoint.blanks(without_replay(like))
        later = {name: np.full_like(x, np.nan) for name, x in blank.items() if name.endswith(LATER)}
        arrays = {name: array for name, array in arrays.items() if name in blank or not name.startswith(GONE)}
        state = checkpoint.restore(later | arrays, without_replay(like))
        replay = _replay(like)
        if replay is not None:
            self._segments = meta.pop("replay", [])
            try:
                steps = _read(self.folder, self._segments, replay)
            except Unusable as problem:
                advice = checkpoint.advice(path, lambda other: _check_segments(other, replay))
                raise CheckpointError(f"cannot use checkpoint {path}: {problem}. {advice}") from None
            state = _map_replay(lambda kept: kept._replace(steps=steps), state)
        return state, meta

    def _take_best(self, arrays: dict[str, np.ndarray], meta: dict[str, Any], like: PyTree) -> None:
        records = meta.pop("best", None)
        if records is not None:
            named = {name.removeprefix(_BEST): array for name, array in arrays.items()}
            self.best = Best(tuple(records), checkpoint.restore(named, like.agent._replace(extra=None)))

    def show_best(self) -> None:
        """Show the best policies that the newest checkpoint holds, which are the truth, in a file of their own."""
        if self.best is None or not self.best.feasible:
            (self.folder / BEST).unlink(missing_ok=True)
        elif self._written != self.best.records:
            arrays = checkpoint.named_arrays({"agent": self.best.agents})
            data, _ = checkpoint.encode(arrays, self.best.iteration, {"best": self.best.records})
            checkpoint.write_atomically(self.folder / BEST, data)
            self._written = self.best.records


def without_replay(state: PyTree) -> PyTree:
    """``state`` as a checkpoint holds it: of a replay only the number of steps added."""
    return _map_replay(lambda replay: replay._replace(steps=None), state)


def _is_replay(node: Any) -> bool:
    return isinstance(node, Replay)


def _map_replay(change: Any, state: PyTree) -> PyTree:
    return jax.tree.map(lambda x: change(x) if _is_replay(x) else x, state, is_leaf=_is_replay)


def _replay(state: PyTree) -> Replay | None:
    found = [node for node in jax.tree.leaves(state, is_leaf=_is_replay) if _is_replay(node)]
    if len(found) > 1:
        raise TypeError("a training state holds one replay at most")
    return found[0] if found else None


def _append(folder: Path, iteration: int, replay: Replay, before: list[Segment]) -> list[Segment]:
    """Write the steps added since the last of ``before``; returns the segments that the whole replay needs."""
    if not all((folder / segment["file"]).is_file() for segment in before):
        before = []  # somebody removed them: the whole replay is written anew
    added = np.asarray(replay.added, np.int64)
    since = added - (np.asarray(before[-1]["added"]) if before else 0)
    count = int(min(since.max(), replay.capacity))
    if count == 0:
        return before
    lanes, slots = _slots(added, count, replay.capacity)
    arrays = {name: np.asarray(x)[lanes, slots] for name, x in replay.steps._asdict().items()}
    data, checksum = checkpoint.encode(arrays, iteration, {"count": count, "added": added.tolist()})
    file = f"replay-{iteration:08d}-{checksum[:8]}.safetensors"
    folder.mkdir(exist_ok=True)
    checkpoint.write_atomically(folder / file, data)
    segments = [*before, {"file": file, "sha256": checksum, "count": count, "added": added.tolist()}]
    return _needed(segments, replay.capacity)


def _slots(added: np.ndarray, count: int, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Index of the last ``count`` steps of every lane. A lane that added fewer since the last segment gives some that
    were saved before: the same content again, so that lanes may differ and arrays still be rectangular."""
    lanes = np.arange(len(added))[:, None]
    return lanes, (added[:, None] - count + np.arange(count)) % capacity


def _needed(segments: list[Segment], capacity: int) -> list[Segment]:
    """The newest segments that hold every step still in the ring."""
    oldest_kept = np.maximum(np.asarray(segments[-1]["added"]) - capacity, 0)
    for first in range(len(segments) - 1, -1, -1):
        if np.all(np.asarray(segments[first]["added"]) - segments[first]["count"] <= oldest_kept):
            return segments[first:]
    return segments


def _read(folder: Path, segments: list[Segment], like: Replay) -> Transitions:
    """The ring that ``segments`` make, oldest first; slots never written are zero, as in a fresh one."""
    steps = {name: np.zeros(x.shape, x.dtype) for name, x in like.steps._asdict().items()}
    for segment in segments:
        arrays = read_segment(folder, segment)
        lanes, slots = _slots(np.asarray(segment["added"]), segment["count"], like.capacity)
        for name, whole in steps.items():
            saved = arrays.get(name)
            wanted = (whole.shape[0], segment["count"], *whole.shape[2:])
            if saved is None or saved.shape != wanted or saved.dtype != whole.dtype:
                raise Unusable(f"its replay in {segment['file']} does not fit this run ({name})")
            whole[lanes, slots] = saved
    return Transitions(**{name: checkpoint.like_leaf(steps[name], x) for name, x in like.steps._asdict().items()})


def read_segment(folder: Path, segment: Segment) -> dict[str, np.ndarray]:
    try:
        path = files.inside(folder, segment["file"])
        arrays, _ = checkpoint.read_verified(path)
        checksum = checkpoint.read_header(path)["sha256"]
    except (Unusable, UsageError) as problem:
        raise Unusable(f"its replay file {segment['file']} cannot be used: {problem}") from None
    if checksum != segment["sha256"]:
        raise Unusable(f"its replay file {segment['file']} is not the one that it was saved with")
    return arrays


def _check_segments(path: Path, like: Replay) -> None:
    """Raise ``Unusable`` unless the checkpoint and all that it names are sound."""
    _, meta = checkpoint.read_verified(path)
    _read(path.parent, meta.get("replay", []), like)


def _remove_unnamed(folder: Path) -> None:
    """Drop segments that no checkpoint names; where a checkpoint cannot be read, all stay."""
    try:
        headers = [checkpoint.read_header(path) for path in checkpoint.by_iteration(folder)]
        metas = [sealed.parse(header["meta"], strict=False) for header in headers]
        named = {segment["file"] for meta in metas for segment in meta.get("replay", [])}
    except (Unusable, ValueError, LookupError, TypeError, AttributeError):
        return
    for path in folder.glob("replay-*.safetensors"):
        if path.name not in named:
            path.unlink(missing_ok=True)
