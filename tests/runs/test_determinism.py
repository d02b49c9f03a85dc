"""The same run again gives the same bits: from one backend, and gone on with on another number of cores."""

import os
import sys

import killing
import pytest

CASES = ("ppo_lag", "cppo", "threads")


def train(case, folder, cores, *more):
    """A process on the first ``cores`` cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        process = killing.command(*killing.words_for(case, folder), *more)
    finally:
        os.sched_setaffinity(0, before)
    said = process.communicate()[0]
    assert process.returncode == 0, said


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="binds processes to cores")
@pytest.mark.parametrize("case", CASES)
def test_the_same_again_and_on_another_number_of_cores(case, tmp_path):
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        pytest.skip("one core only")
    for name in ("whole", "again"):
        train(case, tmp_path / name, cores)
    whole = killing.result(tmp_path / "whole")
    assert killing.same(killing.result(tmp_path / "again"), whole, exact=True)
    steps = killing.CASES[case][killing.CASES[case].index("--steps") + 1]
    train(case, tmp_path / "parts", 1, "--steps", str(int(steps) // 2))
    train(case, tmp_path / "parts", cores, "--steps", steps)
    assert killing.same(killing.result(tmp_path / "parts"), whole, exact=True)
