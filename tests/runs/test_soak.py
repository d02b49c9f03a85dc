"""Training for long: memory stays flat and the rate steady."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import cppo

SETTINGS = {"batch_size": 10_000, "num_envs": 100, "epochs": 4, "value_epochs": 4}


def resident():
    """Megabytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for the memory of a process")
@pytest.mark.parametrize("steps", [10**7, 10**8])
def test_memory_is_flat_and_the_rate_steady(steps, tmp_path):
    """The rate is by the processor's time, since other programs may take the machine's."""
    seen = []

    def look(rows):
        seen.append((time.process_time(), resident()))

    how = {"settings": SETTINGS, "seeds": 1, "show": False, "callback": look}
    cppo.train("ppo_lag", "ProbeBox", steps=steps, out=tmp_path / "run", **how)
    seconds, memory = np.array(seen).T
    fifth = len(seen) // 5
    first, last = np.mean(np.diff(seconds[fifth : 2 * fifth])), np.mean(np.diff(seconds[-fifth:]))
    late = memory[-fifth:].max()
    print(f"{steps:,} steps: {memory[fifth]:.0f} MB, at the end {late:.0f}, at most {memory.max():.0f} MB", end="; ")
    print(f"{first:.4f} to {last:.4f} s an iteration")
    assert late < 1.05 * memory[fifth] and last < 1.2 * first
