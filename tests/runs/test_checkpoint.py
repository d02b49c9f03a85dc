"""Checkpoints: bit-exact, atomic under SIGKILL, and refused with a useful message when they are not sound."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from cppo.runs import checkpoint
from cppo.runs.checkpoint import CheckpointError
from cppo.types import UsageError


class Layer(NamedTuple):
    weight: Any
    bias: Any


def example_state(value: float = 1.5) -> dict:
    layers = [Layer(jnp.full((2, 3), value), jnp.arange(3, dtype=jnp.int32)), Layer(jnp.zeros((0, 4)), jnp.array(True))]
    return {"algo": {"layers": layers, "count": jnp.array(7)}, "keys": jnp.array([[1, 2**32 - 1]], dtype=jnp.uint32)}


ARRAYS = st.sampled_from([np.bool_, np.int32, np.uint32, np.float32, np.float64]).flatmap(
    lambda dtype: st_numpy.arrays(dtype, st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
NAMES = st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"]), min_size=1, max_size=8)


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    left, right = np.asarray(left), np.asarray(right)
    return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


@settings(max_examples=60, deadline=None)
@given(
    state=st.recursive(ARRAYS, lambda inner: st.dictionaries(NAMES, inner, max_size=3) | st.lists(inner, max_size=3))
)
def test_round_trip_is_bit_exact(tmp_path_factory, state):
    folder = tmp_path_factory.mktemp("round-trip")
    arrays, _ = checkpoint.load(checkpoint.save(folder, 3, state, {}))
    restored = checkpoint.restore(arrays, like=state)
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    assert all(map(same_bits, jax.tree.leaves(restored), jax.tree.leaves(state)))


def test_special_values_and_non_contiguous_arrays_survive(tmp_path):
    state = {"nan": np.array([np.nan, -0.0, np.inf, -np.nan]), "transposed": np.arange(6.0).reshape(2, 3).T}
    arrays, _ = checkpoint.load(checkpoint.save(tmp_path, 0, state, {}))
    assert all(same_bits(arrays[name], state[name]) for name in state)


def test_names_are_readable_and_meta_comes_back(tmp_path):
    path = checkpoint.save(tmp_path, 12, example_state(), {"env": "PointCircle", "limit": 0.1, "seeds": [0, 1]})
    arrays, meta = checkpoint.load(path)
    assert path.name == "checkpoint-00000012.safetensors"
    assert meta == {"env": "PointCircle", "limit": 0.1, "seeds": [0, 1], "iteration": 12}
    assert list(arrays) == [
        "algo.count",
        "algo.layers.0.bias",
        "algo.layers.0.weight",
        "algo.layers.1.bias",
        "algo.layers.1.weight",
        "keys",
    ]


def test_restore_into_abstract_state_gives_jax_arrays(tmp_path):
    arrays, _ = checkpoint.load(checkpoint.save(tmp_path, 0, example_state(2.0), {}))
    restored = checkpoint.restore(arrays, like=jax.eval_shape(example_state))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(restored))
    assert isinstance(restored["algo"]["layers"][0], Layer)
    assert all(map(same_bits, jax.tree.leaves(restored), jax.tree.leaves(example_state(2.0))))


def test_only_the_newest_are_kept_and_stale_partial_files_go(tmp_path):
    (tmp_path / "checkpoint-00000001.safetensors.partial").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    for iteration in (5, 10, 15, 20):
        checkpoint.save(tmp_path, iteration, example_state(), {}, keep=2)
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint-00000015.safetensors",
        "checkpoint-00000020.safetensors",
        "notes.txt",
    ]
    assert checkpoint.latest(tmp_path).name == "checkpoint-00000020.safetensors"


def test_saving_after_going_back_drops_the_abandoned_future(tmp_path):
    for iteration in (10, 20, 30):
        checkpoint.save(tmp_path, iteration, example_state(), {})
    checkpoint.save(tmp_path, 15, example_state(), {}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000015.safetensors"]


def test_a_failed_write_keeps_everything_that_was_there(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, example_state(), {}, keep=1)

    def disk_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tmp_path, 2, example_state(), {}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000001.safetensors"]
    checkpoint.load(checkpoint.latest(tmp_path))


# --- what is refused, and how ---------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path) -> tuple[Path, Path]:
    return tuple(checkpoint.save(tmp_path, iteration, example_state(), {"a": 1}) for iteration in (10, 20))  # type: ignore


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(path)
    assert isinstance(caught.value, UsageError)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    return message


def test_every_flipped_byte_is_refused_or_harmless(two):
    _, path = two
    sound, (arrays, meta) = path.read_bytes(), checkpoint.load(path)
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        try:
            read, read_meta = checkpoint.load(path)
        except CheckpointError as error:
            assert "checkpoint-00000010.safetensors" in str(error)
        else:  # only what means nothing may change unnoticed
            assert read_meta == meta and all(same_bits(read[name], arrays[name]) for name in arrays)


def test_a_flipped_byte_names_the_checkpoint_that_is_still_good(two):
    good, path = two
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    message = refusal(path)
    assert "damaged" in message and "checksum" in message
    assert f"Still good in the same folder: {good.name}" in message


def test_a_changed_header_value_is_noticed(two):
    _, path = two
    path.write_bytes(path.read_bytes().replace(b'{\\"a\\": 1}', b'{\\"a\\": 2}'))
    assert "checksum" in refusal(path)


@pytest.mark.parametrize("length", [0, 5, 100, -20, -1])
def test_a_truncated_file(two, length):
    good, path = two
    path.write_bytes(path.read_bytes()[:length])
    message = refusal(path)
    assert ("empty" if length == 0 else "not a cppo checkpoint" if length == 5 else "truncated") in message
    assert good.name in message


def test_a_foreign_file(two):
    good, path = two
    path.write_text("return,cost\n1,2\n")
    assert "not a cppo checkpoint" in refusal(path)
    safetensors.numpy.save_file({"weight": np.ones(3)}, path, metadata={"format": "pt"})
    assert "not a cppo checkpoint" in refusal(path) and good.name in refusal(path)


def test_a_newer_version(two):
    good, path = two
    path.write_bytes(path.read_bytes().replace(b'"version":"1"', b'"version":"9"'))
    message = refusal(path)
    assert "format version 9" in message and "newer cppo" in message and good.name in message


def test_no_good_checkpoint_left(two):
    for path in two:
        path.write_bytes(b"")
    assert "no other good checkpoint" in refusal(two[0])


def test_missing_file_and_empty_folder(tmp_path):
    assert "cannot be read" in refusal(tmp_path / "checkpoint-00000001.safetensors")
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(CheckpointError, match="no checkpoint in"):
            checkpoint.latest(folder)


def test_restore_names_what_does_not_fit():
    arrays = {"a": np.zeros(3), "b": np.zeros(2, np.float32), "old": np.zeros(1)}
    like = {"a": np.zeros(4), "b": np.zeros(2), "new": np.zeros(1)}
    with pytest.raises(CheckpointError) as caught:
        checkpoint.restore(arrays, like)
    message = str(caught.value)
    assert "it lacks new" in message and "it has old" in message
    assert "a is float64[3] in the checkpoint and float64[4] in this run" in message
    assert "b is float32[2] in the checkpoint and float64[2] in this run" in message


def test_restore_never_rounds(tmp_path):
    if jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        pytest.skip("float64 is on")
    arrays, _ = checkpoint.load(checkpoint.save(tmp_path, 0, {"x": np.array([0.1])}, {}))
    with pytest.raises(CheckpointError, match="JAX_ENABLE_X64"):
        checkpoint.restore(arrays, {"x": jax.ShapeDtypeStruct((1,), np.dtype("float64"))})


@pytest.mark.parametrize("leaf", [3, "text", jnp.zeros(2, jnp.bfloat16), jax.random.key(0)])
def test_only_plain_arrays_are_saved(tmp_path, leaf):
    with pytest.raises(TypeError, match="'x' is"):
        checkpoint.save(tmp_path, 0, {"x": leaf}, {})
    assert not any(tmp_path.iterdir())


def test_ambiguous_names_and_keep_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'a\.b'"):
        checkpoint.save(tmp_path, 0, {"a": {"b": np.ones(1)}, "a.b": np.ones(1)}, {})
    with pytest.raises(UsageError, match="keep = 0"):
        checkpoint.save(tmp_path, 0, {}, {}, keep=0)


# --- kill -9 ----------------------------------------------------------------------------------------------------------

# One interpreter forks a writer again and again: importing JAX once keeps some dozens of kills within seconds.
KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
from cppo.runs import checkpoint

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
state = lambda iteration: {"x": np.full(200_000, iteration), "n": np.array(iteration)}
checkpoint.save(folder, 0, state(0), {})
reached, interrupted = [0], 0
for number in range(rounds):
    before, child = set(os.listdir(folder)), os.fork()
    if child == 0:
        iteration = reached[-1]
        while True:
            iteration += 1
            checkpoint.save(folder, iteration, state(iteration), {"same": iteration}, keep=2)
    while set(os.listdir(folder)) == before:  # a busy machine lets it wait
        time.sleep(0.001)
    time.sleep(random.Random(number).uniform(0.005, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    interrupted += any(folder.glob("*.partial"))
    newest = checkpoint.latest(folder)
    arrays, meta = checkpoint.load(newest)
    assert (arrays["x"] == meta["iteration"]).all() and arrays["n"] == meta["iteration"], newest
    assert meta["iteration"] >= reached[-1], (meta, reached)
    reached.append(meta["iteration"])
print(json.dumps({"reached": reached[-1], "interrupted": interrupted}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_sigkill_always_leaves_a_good_newest_checkpoint(tmp_path):
    source = str(Path(checkpoint.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", KILLER, str(tmp_path), "40"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["reached"] > 10  # it did save between the kills
    assert outcome["interrupted"] > 0  # and some kills did hit a write
