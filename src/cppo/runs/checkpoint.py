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
import math
import os
import re
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from cppo import files
from cppo.files import write_atomically as write_atomically
from cppo.runs import memory
from cppo.runs.sealed import harmless, parse
from cppo.types import PyTree, UsageError

FORMAT = "cppo-checkpoint"
VERSION = 1
BEST = "best.safetensors"  # beside the checkpoints: the best policies that were evaluated while training
MODEL = "model.safetensors"  # parameters of an exported run (policies/export/hub.py), or of one that comes with cppo
OPTIMISER = ".optimiser."  # in the names of what only training on remembers

_NAME = re.compile(r"checkpoint-(\d{8,})\.safetensors")
_STORED = {"BOOL": "bool", "F16": "float16", "F32": "float32", "F64": "float64"}
_STORED |= {f"{kind[0].upper()}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_DTYPES = {*_STORED.values()}


class CheckpointError(UsageError):
    """A checkpoint cannot be used; the message says which, why, and which one still can."""


def checkpoints_of(run: Path) -> Path:
    """Where a run's folder keeps its checkpoints: they are written and removed there, so it must be no link."""
    try:
        return files.unlinked(run / "checkpoints")
    except UsageError as error:
        raise CheckpointError(str(error)) from None


def name_of(iteration: int) -> str:
    return f"checkpoint-{iteration:08d}.safetensors"


def iteration_of(path: Path) -> int:
    """By its name; ``load`` says it for a file of any name."""
    match = _NAME.fullmatch(path.name)
    assert match is not None, path
    return int(match.group(1))


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
    folder.mkdir(exist_ok=True)  # but not the folder that holds it: a run that was moved away leaves no fragments
    for stale in folder.glob(f"*.safetensors{files.PARTIAL}"):
        stale.unlink(missing_ok=True)
    path = folder / name_of(iteration)
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


def blanks(like: PyTree) -> dict[str, np.ndarray]:
    """Zeros by name in the structure of ``like``."""
    return {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in _named_leaves(like).items()}


def named_arrays(state: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a pytree by readable name, such as ``algo.policy.layers.0.weight``."""
    arrays = {}
    for name, leaf in _named_leaves(state).items():
        dtype = str(getattr(leaf, "dtype", type(leaf).__name__))
        if dtype not in _DTYPES or not hasattr(leaf, "shape"):
            raise TypeError(f"training state {name!r} is {dtype}: a checkpoint holds arrays of plain dtypes only")
        arrays[name] = np.asarray(leaf, order="C")
    return arrays


class Unusable(Exception):
    """Why a file is not a usable checkpoint, as the end of a sentence."""


def read_verified(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and meta of a sound file; ``Unusable`` says why it is not."""
    try:
        with files.open_read(path) as file:
            header, tensors = _read_header(file)
            data = bytearray(os.fstat(file.fileno()).st_size - file.tell())
            file.readinto(data)  # read() would join two parts, and so need twice the memory
    except OSError as error:
        raise Unusable(f"it cannot be read ({error.strerror or error})") from None
    try:
        arrays = _views(memoryview(data).toreadonly(), tensors)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise Unusable(f"it is damaged ({type(error).__name__}: {error})") from None
    if header.get("sha256") != _checksum(arrays, header.get("iteration", ""), header.get("meta", "")):
        raise Unusable("it is damaged (its content does not match its checksum)")
    try:
        meta = {**harmless(parse(header["meta"], strict=False)), "iteration": int(header["iteration"])}
    except (ValueError, TypeError, KeyError, RecursionError):  # sound by its checksum: somebody made it so
        raise Unusable("what it says of itself cannot be read") from None
    return dict(sorted(arrays.items())), meta


def read_header(path: Path) -> dict[str, str]:
    """The text header of a file, which is quick: nothing but its form is checked."""
    try:
        with files.open_read(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(os.fstat(file.fileno()).st_size, files.TEXT):
                raise Unusable("it is truncated")
            return parse(file.read(length), strict=False)["__metadata__"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unusable(f"its header cannot be read ({error})") from None


def _views(data: memoryview, tensors: dict[str, dict[str, Any]]) -> dict[str, np.ndarray]:
    """The tensors as views of the bytes after the header, which the library would copy: replays are large."""
    found, end = {}, 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, (first, last) = np.dtype(_STORED[tensor["dtype"]]), tensor["data_offsets"]
        shape = tuple(int(size) for size in tensor["shape"])
        if first != end or last != first + math.prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
            raise ValueError(f"{name} lies at {first} to {last}")
        found[name] = np.frombuffer(data, dtype, math.prod(shape), first).reshape(shape)
        end = last
    return found


def _read_header(file: BufferedReader) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Text metadata and tensors of a safetensors file: 8 bytes of header length, a JSON header, the tensors' bytes.

    The file is as long as its header says, which is found out before it is read: it may be a hole of a terabyte.
    """
    size = os.fstat(file.fileno()).st_size
    if not size:
        raise Unusable("it is empty")
    length = int.from_bytes(file.read(8), "little")
    data = file.read(min(length, files.TEXT))
    looks_like_ours = data[:1] == b"{" and b"__metadata__" in data[:64_000]
    if len(data) < length:
        raise Unusable("it is truncated" if looks_like_ours else "it is not a cppo checkpoint")
    start = 8 + length
    try:
        header = parse(data, strict=False)
        metadata = header.pop("__metadata__", {})
        end = start + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
        format_name = metadata.get("format")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise Unusable("its header is damaged" if FORMAT.encode() in data else "it is not a cppo checkpoint") from None
    if format_name != FORMAT:
        raise Unusable(f"it is not a cppo checkpoint (a safetensors file of format {format_name!r})")
    _check_version(str(metadata.get("version", "")))
    if size != end:
        what = "truncated" if size < end else "damaged"
        raise Unusable(f"it is {what} ({size:,} of {end:,} bytes)")
    if size > (memory.of_machine() or size):
        raise Unusable(f"its {size:,} bytes do not fit into this machine's memory")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise Unusable("its header is damaged")
    return metadata, header


def _check_version(text: str) -> None:
    if not text.isdecimal() or len(text) > 9:
        raise Unusable(f"it is damaged (format version {text[:20]!r} is not a number)")
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
    names = filter(_NAME.fullmatch, os.listdir(folder)) if folder.is_dir() else ()
    return sorted((folder / name for name in names), key=iteration_of)


def _remove_surplus(folder: Path, iteration: int, keep: int) -> None:
    found = by_iteration(folder)
    current = found.index(folder / name_of(iteration))
    surplus = [*found[: max(0, current + 1 - keep)], *found[current + 1 :]]
    for path in surplus:
        path.unlink(missing_ok=True)
