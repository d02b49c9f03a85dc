"""Replay in its own files: only what is new is written, every kept checkpoint keeps its replay, also under SIGKILL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.maths.replay_buffer import Replay, Transitions
from cppo.runs import checkpoint
from cppo.runs.checkpoint import CheckpointError
from cppo.runs.saving import Saver

LANES, CAPACITY = 3, 10


def ring(added: list[int], capacity: int = CAPACITY, mark: float = 0.0) -> Replay:
    """What a ring holds after ``added`` steps of each lane: step i carries i (+ mark) in every field, else zeros."""
    number = np.zeros((len(added), capacity))
    for lane, total in enumerate(added):
        for step in range(max(0, total - capacity), total):
            number[lane, step % capacity] = 1 + step + mark
    number = jnp.asarray(number, jnp.float32)
    obs = number[..., None]
    return Replay(Transitions(obs, obs, -obs, number, obs, number % 2 == 1), jnp.asarray(added, jnp.int32))


def state(added: list[int], **options) -> dict:
    return {"agent": {"replay": ring(added, **options), "weight": jnp.asarray(added, jnp.float32)}}


def assert_same(left, right) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for ours, theirs in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def segments(folder: Path) -> list[str]:
    return sorted(path.name[:15] for path in folder.glob("replay-*"))


def test_each_save_writes_the_new_steps_alone(tmp_path):
    saver = Saver(tmp_path)
    for iteration, added in enumerate(([4] * 3, [7] * 3, [7] * 3, [9] * 3), start=1):
        saver.save(iteration, state(added), {})
    assert segments(tmp_path) == ["replay-00000001", "replay-00000002", "replay-00000004"]
    counts = [safe["reward"].shape for safe in (checkpoint.load(p)[0] for p in sorted(tmp_path.glob("replay-*")))]
    assert counts == [(3, 4), (3, 3), (3, 2)]
    arrays, _ = checkpoint.load(checkpoint.latest(tmp_path))
    assert list(arrays) == ["agent.replay.added", "agent.weight"]


def test_every_kept_checkpoint_has_its_own_replay_whatever_was_added_between(tmp_path):
    """Lanes at different speeds, nothing new, more new than the ring holds, wrapping at every offset."""
    rng = np.random.default_rng(0)
    saver, added, history = Saver(tmp_path), np.zeros(LANES, int), []
    for iteration in range(40):
        added = added + rng.integers(0, rng.choice([1, 4, 25]), LANES)
        saver.save(iteration, state(added.tolist()), {})
        history.append(added.tolist())
        for kept in range(max(0, iteration - 2), iteration + 1):
            restored, meta = Saver(tmp_path).load(state([0] * LANES), f"checkpoint-{kept:08d}.safetensors")
            assert_same(restored, state(history[kept]))
            assert meta == {"iteration": kept}
    assert len(segments(tmp_path)) < 15  # what no checkpoint needs is gone


def test_going_back_keeps_the_abandoned_future_s_replay_until_a_checkpoint_replaces_it(tmp_path, monkeypatch):
    saver = Saver(tmp_path)
    for iteration, added in ((1, [3] * 3), (2, [6] * 3), (3, [9] * 3)):
        saver.save(iteration, state(added), {})
    back = Saver(tmp_path)
    back.load(state([0] * 3), "checkpoint-00000001.safetensors")
    # The same iteration as before with other steps 3 to 5, as where an environment cannot resume exactly.
    abandoned = next(tmp_path.glob("replay-00000002-*"))
    before = abandoned.read_bytes()
    monkeypatch.setattr(checkpoint, "save", lambda *_: pytest.fail("killed before the checkpoint"))
    with pytest.raises(pytest.fail.Exception):
        back.save(2, state([6] * 3, mark=0.5), {})
    assert abandoned.read_bytes() == before
    assert_same(Saver(tmp_path).load(state([0] * 3))[0], state([9] * 3))
    monkeypatch.undo()
    back.save(2, state([6] * 3, mark=0.5), {})
    restored, _ = Saver(tmp_path).load(state([0] * 3))
    np.testing.assert_array_equal(restored["agent"]["replay"].steps.reward[0, :6], [1, 2, 3, 4.5, 5.5, 6.5])
    assert segments(tmp_path) == ["replay-00000001", "replay-00000002"]


def test_a_damaged_or_missing_segment_is_refused_with_the_checkpoint_that_is_still_good(tmp_path):
    saver = Saver(tmp_path)
    for iteration, added in ((1, [3] * 3), (2, [6] * 3)):
        saver.save(iteration, state(added), {})
    path = next(tmp_path.glob("replay-00000002-*"))
    sound = path.read_bytes()
    for damage, words in ((sound[:-1], "truncated"), (sound[:-1] + bytes([sound[-1] ^ 1]), "checksum"), (None, "read")):
        path.unlink() if damage is None else path.write_bytes(damage)
        with pytest.raises(CheckpointError, match=words) as caught:
            Saver(tmp_path).load(state([0] * 3))
        assert path.name in str(caught.value) and "checkpoint-00000001.safetensors" in str(caught.value)
    path.write_bytes(next(tmp_path.glob("replay-00000001-*")).read_bytes())
    with pytest.raises(CheckpointError, match="not the one"):
        Saver(tmp_path).load(state([0] * 3))
    next(tmp_path.glob("replay-00000001-*")).unlink()
    with pytest.raises(CheckpointError, match="no other good checkpoint"):
        Saver(tmp_path).load(state([0] * 3))


def test_a_replay_of_another_shape_is_refused(tmp_path):
    Saver(tmp_path).save(1, state([3] * 3), {})
    wide = state([3] * 3)
    steps = wide["agent"]["replay"].steps
    wide["agent"]["replay"] = wide["agent"]["replay"]._replace(steps=steps._replace(obs=jnp.zeros((3, CAPACITY, 2))))
    with pytest.raises(CheckpointError, match="does not fit this run"):
        Saver(tmp_path).load(wide)


KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
import jax
import numpy as np
from test_saving import assert_same, state
from cppo.runs.saving import Saver

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
states = [jax.tree.map(np.asarray, state([3 * i, 2 * i], capacity=7)) for i in range(1500)]  # JAX does not like forks
Saver(folder, keep=2).save(0, states[0], {})
reached, interrupted = [0], 0
for number in range(rounds):
    before, child = set(os.listdir(folder)), os.fork()
    if child == 0:
        saver, iteration = Saver(folder, keep=2), reached[-1]
        saver.load(states[0])
        while True:
            iteration += 1
            saver.save(iteration, states[iteration], {})
    while set(os.listdir(folder)) == before:  # a busy machine lets it wait
        time.sleep(0.001)
    time.sleep(random.Random(number).uniform(0.01, 0.08))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    newest = max(int(p.name[11:19]) for p in folder.glob("checkpoint-*.safetensors"))
    segments = {int(p.name[7:15]) for p in folder.glob("replay-*")}
    interrupted += any(folder.glob("*.partial")) or max(segments, default=0) > newest
    restored, meta = Saver(folder).load(states[0])
    assert_same(restored, states[meta["iteration"]])
    assert meta["iteration"] == newest >= reached[-1]
    reached.append(newest)
print(json.dumps({"reached": reached[-1], "interrupted": interrupted}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_sigkill_always_leaves_a_checkpoint_with_its_replay(tmp_path):
    paths = [str(Path(checkpoint.__file__).parents[2]), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", KILLER, str(tmp_path), "40"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["reached"] > 10  # it did save between the kills
    assert outcome["interrupted"] > 0  # and some kills hit a write, or fell between segment and checkpoint
