"""E-step time against a general convex solver (Clarabel).

    python benchmarks/estep.py                     double precision, one constraint, normal and recovery
    python benchmarks/estep.py --kind sparse       1% costly samples (kinds: normal, heavy, sparse)
    python benchmarks/estep.py --constraints 2 --precision 32

Columns: "call" is one jitted call from Python, results waited for (best and median); "inside" is the time per E-step
of a loop of them within one jitted function, which is how an update runs it and leaves out Python's dispatch;
"Clarabel" is the solver's own reported time, without its modelling layer and summed over the problems that a recovery
update consists of; "times" compares it with the median call and with "inside". Above --largest Clarabel is not run.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from cppo.maths.estep import Status, solve

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "maths"))
import reference

VARIANCE = 0.02 / (2 * np.log(2) - 1)


def batch(kind: str, n: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, A_c and budgets that bind: 30% of what the ball alone would allow (sparse costs: 15%)."""
    rng = np.random.default_rng(seed)
    draw = (lambda size: rng.standard_t(2.5, size)) if kind == "heavy" else rng.standard_normal
    A, A_c = draw(n), draw((m, n))
    if kind == "sparse":
        A_c = (rng.random((m, n)) < 0.01) * np.abs(A_c)
    share = 0.15 if kind == "sparse" else 0.3
    return A, A_c, -share * np.sqrt(VARIANCE) * A_c.std(axis=1)


def clock(call, seconds: float = 1.0) -> np.ndarray:
    """Times of repeated calls, warm."""
    jax.block_until_ready(call())
    times: list[float] = []
    while (sum(times) < seconds and len(times) < 2000) or len(times) < 5:
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return np.array(times)


def repeated(count: int):
    """`count` E-steps in a row in one jitted function; each depends on the one before, so none can be left out."""

    @jax.jit
    def run(A, A_c, budget, variance, recovery):
        def body(_, shift):
            # Inputs that change (by less than rounding) in every round: nothing can be computed once for all rounds.
            same = 1 + 1e-30 * shift
            step = solve(A * same, A_c * same, budget, variance, recovery)
            return step.ratios[0] + step.reward_change

        return jax.lax.fori_loop(0, count, body, jnp.zeros((), A.dtype))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 30_000, 100_000, 1_000_000])
    parser.add_argument("--kind", choices=["normal", "heavy", "sparse"], default="normal")
    parser.add_argument("--constraints", type=int, default=1)
    parser.add_argument("--precision", type=int, choices=[32, 64], default=64)
    parser.add_argument("--largest", type=int, default=100_000, help="largest batch given to Clarabel (0: none)")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", arguments.precision == 64)
    warnings.simplefilter("ignore")
    dtype, m = (jnp.float64 if arguments.precision == 64 else jnp.float32), arguments.constraints
    solver = jax.jit(solve, static_argnames="exact")
    print(f"{arguments.kind} advantages, {m} constraint(s), float{arguments.precision}, {jax.devices()[0].device_kind}")
    head = f"{'N':>9} {'update':>8} {'call best/median ms':>20} {'inside ms':>10} {'passes':>6} {'Clarabel ms':>11}"
    print(f"{head} {'times (call/inside)':>20} {'gap':>8}  status")
    for n in arguments.sizes:
        A, A_c, budget = batch(arguments.kind, n, m)
        for recovery in (False, True):
            values = (A, A_c[0], budget[0]) if m == 1 else (A, A_c, budget)
            inputs = [*(jnp.asarray(v, dtype) for v in values), jnp.asarray(VARIANCE, dtype), jnp.asarray(recovery)]
            step = solver(*inputs)
            times = 1e3 * clock(lambda x=inputs: solver(*x))
            count = max(2, min(200, 2_000_000 // n))
            run = repeated(count)
            inside = 1e3 * np.median(clock(lambda x=inputs, run=run: run(*x))) / count
            line = f"{n:>9,} {('normal', 'recovery')[recovery]:>8} {times.min():>10.3f} /{np.median(times):>8.3f}"
            line += f" {inside:>10.3f} {int(step.iterations):>6}"
            if n <= arguments.largest:
                ref = reference.solve(A, A_c, budget, VARIANCE, recovery, tolerance=1e-8)
                ms = 1e3 * ref.seconds
                if ref.branch == "descend":
                    gap = np.sum((np.asarray(step.cost_change) - ref.cost) / A_c.std(axis=1)) / np.sqrt(VARIANCE)
                else:
                    gap = (ref.reward - float(step.reward_change)) / A.std() / np.sqrt(VARIANCE)
                line += f" {ms:>11.1f} {ms / np.median(times):>9.0f} / {ms / inside:>8.0f} {gap:>8.0e}"
            else:
                line += f" {'-':>11} {'-':>9} / {'-':>8} {'-':>8}"
            print(f"{line}  {Status(int(step.status)).name}", flush=True)


if __name__ == "__main__":
    main()
