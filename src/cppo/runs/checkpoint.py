"""Checkpoints: the whole training state in one safetensors file, complete or absent.

A checkpoint is written beside its final name, forced to disk and renamed, so that a kill (or a power cut) at any moment
leaves the previous one untouched. It holds named arrays and JSON only: nothing in it is executed when it is read.
Its header carries a format name, a format version and a SHA-256 over everything that a resumed run depends on (names,
dtypes, shapes, bytes, iteration and ``meta``), so that a damaged file is refused instead of silently changing a run.

>>> import tempfile, numpy as np
>>> folder = Path(tempfile.mkdtemp())
>>> path = save(folder, 7, {"policy": {"weight": np.ones(3)}}, {"env": "PointCircle"})
>>> path.name
'checkpoint-00000007.safetensors'
>>> arrays, meta = load(latest(folder))
>>> list(arrays), meta
(['policy.weight'], {'env': 'PointCircle', 'iteration': 7})
>>> restore(arrays, like={"policy": {"weight": np.zeros(3)}})
{'policy': {'weight': array([1., 1., 1.])}}
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from cppo.types import PyTree, UsageError

FORMAT = "cppo-checkpoint"
VERSION = 1

_NAME = re.compile(r"checkpoint-(\d{8,})\.safetensors")
_PARTIAL = ".partial"  # suffix of a file that is still being written
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DTYPES = {"bool", "float16", "float32", "float64"} | _INTEGERS


class CheckpointError(UsageError):
    """A checkpoint cannot be used; the message says which, why, and which one still can."""


def save(folder: Path, iteration: int, state: PyTree, meta: dict[str, Any], keep: int = 3) -> Path:
    """Write ``state`` (a pytree of arrays) as the checkpoint of ``iteration`` and return its path.

    Afterwards, and only then, checkpoints beyond the newest ``keep`` are removed, and so are those of later
    iterations: they belong to a continuation that was given up by resuming from an earlier checkpoint, and would
    otherwise be mistaken for this run's newest.
    """
    if keep < 1:
        raise UsageError(f"keep = {keep} would remove the checkpoint just written; use keep = 1 or more")
    folder = Path(folder)
    data, _ = encode(named_arrays(jax.device_get(state)), iteration, meta)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob(f"*.safetensors{_PARTIAL}"):
        stale.unlink(missing_ok=True)
    path = folder / f"checkpoint-{iteration:08d}.safetensors"
    write_atomically(path, data)
    _remove_surplus(folder, iteration, keep)
    return path


def encode(arrays: dict[str, np.ndarray], iteration: int, meta: dict[str, Any]) -> tuple[bytes, str]:
    """The content of a file with ``arrays`` and ``meta``, and the checksum in its header."""
    meta_text = json.dumps(meta, sort_keys=True)
    checksum = _checksum(arrays, str(iteration), meta_text)
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "iteration": str(iteration),
        "meta": meta_text,
        "sha256": checksum,
    }
    return safetensors.numpy.save(arrays, metadata=header), checksum


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read and verify a checkpoint: its arrays by name, and the ``meta`` it was saved with plus ``iteration``."""
    path = Path(path)
    try:
        return read_verified(path)
    except Unusable as problem:
        raise CheckpointError(f"cannot use checkpoint {path}: {problem}. {advice(path)}") from None


def latest(folder: Path) -> Path:
    """The newest checkpoint in ``folder``, by iteration (not verified: that is what ``load`` does)."""
    found = by_iteration(Path(folder))
    if not found:
        raise CheckpointError(
            f"no checkpoint in {folder}: expected a file such as checkpoint-00000100.safetensors; "
            "give the folder of a run that has saved at least once"
        )
    return found[-1]


def restore(arrays: dict[str, np.ndarray], like: PyTree) -> PyTree:
    """Put ``arrays`` into the structure of ``like``, a live state or the result of ``jax.eval_shape``.

    Names, shapes and dtypes must agree exactly. NumPy leaves of ``like`` come back as NumPy arrays, all others as
    JAX arrays.
    """
    wanted = _named_leaves(like)
    problems = _mismatches(arrays, wanted)
    if problems:
        raise CheckpointError(
            "the checkpoint does not fit this run: "
            + "; ".join(problems)
            + ". Resume with the settings (algorithm, environment, networks, seeds) that it was saved with"
        )
    leaves = [like_leaf(arrays[name], leaf) for name, leaf in wanted.items()]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def named_arrays(state: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a pytree by readable name, such as ``algo.policy.layers.0.weight``."""
    arrays = {}
    for name, leaf in _named_leaves(state).items():
        dtype = str(getattr(leaf, "dtype", type(leaf).__name__))
        if dtype not in _DTYPES or not hasattr(leaf, "shape"):
            raise TypeError(f"training state {name!r} is {dtype}: a checkpoint holds arrays of plain dtypes only")
        arrays[name] = np.asarray(leaf, order="C")
    return arrays


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` such that a reader, or a crash, sees the old content or the new, never a mixture."""
    partial = path.with_name(path.name + _PARTIAL)
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


class Unusable(Exception):
    """Why a file is not a usable checkpoint, as the end of a sentence."""


def read_verified(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and meta of a sound file; ``Unusable`` says why it is not."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Unusable(f"it cannot be read ({error.strerror or error})") from None
    header = _read_header(data)
    try:
        arrays = safetensors.numpy.load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise Unusable(f"it is damaged ({error})") from None
    if header.get("sha256") != _checksum(arrays, header.get("iteration", ""), header.get("meta", "")):
        raise Unusable("it is damaged (its content does not match its checksum)")
    return dict(sorted(arrays.items())), {**json.loads(header["meta"]), "iteration": int(header["iteration"])}


def read_header(path: Path) -> dict[str, str]:
    """The text header of a file, which is quick: nothing but its form is checked."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > path.stat().st_size:
                raise Unusable("it is truncated")
            return json.loads(file.read(length))["__metadata__"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unusable(f"its header cannot be read ({error})") from None


def _read_header(data: bytes) -> dict[str, str]:
    """The text metadata of a safetensors file: 8 bytes of header length, a JSON header, then the tensors' bytes."""
    if not data:
        raise Unusable("it is empty")
    start = 8 + int.from_bytes(data[:8], "little")
    looks_like_ours = data[8:9] == b"{" and b"__metadata__" in data[:64_000]
    if len(data) < start:
        raise Unusable("it is truncated" if looks_like_ours else "it is not a cppo checkpoint")
    try:
        header = json.loads(data[8:start])
        metadata = header.pop("__metadata__", {})
        end = start + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
        format_name = metadata.get("format")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise Unusable("its header is damaged" if FORMAT.encode() in data else "it is not a cppo checkpoint") from None
    if format_name != FORMAT:
        raise Unusable(f"it is not a cppo checkpoint (a safetensors file of format {format_name!r})")
    _check_version(metadata.get("version", ""))
    if len(data) < end:
        raise Unusable(f"it is truncated ({len(data):,} of {end:,} bytes)")
    return metadata


def _check_version(text: str) -> None:
    if not text.isdecimal():
        raise Unusable(f"it is damaged (format version {text!r} is not a number)")
    if int(text) > VERSION:
        raise Unusable(
            f"it has format version {text}, newer than version {VERSION} that this cppo reads; use a newer cppo"
        )


def advice(path: Path, read: Callable[[Path], Any] = read_verified) -> str:
    """Which checkpoint to use in place of ``path``: the newest other one that ``read`` accepts."""
    for other in reversed(by_iteration(path.parent)):
        if other.name == path.name:
            continue
        try:
            read(other)
        except Unusable:
            continue
        return (
            f"Still good in the same folder: {other.name} (to use it, add --checkpoint {other.name}; "
            "in a study, move the damaged one away and add --retry)"
        )
    return "There is no other good checkpoint in the same folder"


def _checksum(arrays: dict[str, np.ndarray], iteration: str, meta_text: str) -> str:
    digest = hashlib.sha256(json.dumps([iteration, meta_text]).encode())
    for name, array in sorted(arrays.items()):
        # As a JSON list, so that no two different (name, dtype, shape) give the same bytes.
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _named_leaves(tree: PyTree) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "state"
        if name in named:
            raise ValueError(f"two parts of the training state are both named {name!r}; rename one of them")
        named[name] = leaf
    return named


def _mismatches(arrays: dict[str, np.ndarray], wanted: dict[str, Any]) -> list[str]:
    problems = []
    missing = [name for name in wanted if name not in arrays]
    extra = [name for name in arrays if name not in wanted]
    if missing:
        problems.append(f"it lacks {_listed(missing)}")
    if extra:
        problems.append(f"it has {_listed(extra)}, unknown to this run")
    for name, leaf in wanted.items():
        if name in arrays and (arrays[name].shape, arrays[name].dtype) != (tuple(leaf.shape), leaf.dtype):
            saved, expected = _described(arrays[name]), _described(leaf)
            problems.append(f"{name} is {saved} in the checkpoint and {expected} in this run")
    return problems if len(problems) <= 6 else [*problems[:5], f"and {len(problems) - 5} more such differences"]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _described(leaf: Any) -> str:
    return f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"


def like_leaf(array: np.ndarray, leaf: Any) -> Any:
    """``array`` as NumPy or JAX has it, whichever ``leaf`` is of; never rounded."""
    if isinstance(leaf, np.ndarray | np.generic):
        return array.copy()  # loaded arrays are read-only views of the file's bytes
    restored = jnp.array(array)
    if restored.dtype != array.dtype:
        raise CheckpointError(
            f"the checkpoint holds {array.dtype.name} values, which JAX would round to {restored.dtype.name}: "
            "set JAX_ENABLE_X64=1, as when it was saved"
        )
    return restored


def by_iteration(folder: Path) -> list[Path]:
    """The checkpoints in ``folder``, oldest first."""
    names = [match for match in map(_NAME.fullmatch, os.listdir(folder)) if match] if folder.is_dir() else []
    return [folder / match.group() for match in sorted(names, key=lambda match: int(match.group(1)))]


def _remove_surplus(folder: Path, iteration: int, keep: int) -> None:
    found = by_iteration(folder)
    current = found.index(folder / f"checkpoint-{iteration:08d}.safetensors")
    surplus = [*found[: max(0, current + 1 - keep)], *found[current + 1 :]]
    for path in surplus:
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Force a rename to disk; systems that cannot open a folder (Windows) order renames themselves."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
