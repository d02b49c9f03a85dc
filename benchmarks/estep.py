"""E-step time against a general convex solver (Clarabel).

    python benchmarks/estep.py                     double precision, one constraint, normal and recovery
    python benchmarks/estep.py --kind sparse       1% costly samples (kinds: normal, heavy, sparse)
    python benchmarks/estep.py --constraints 2 --precision 32

Columns: "call" is one jitted call from Python, results waited for (best and median), and "floor" the best call of a
jitted function with the same inputs and outputs that computes next to nothing: what JAX itself takes. "inside" is the
best time per E-step of a loop of them within one jitted function, which is how an update runs it, and "ns each" that
time for one sample: constant where the E-step is linear in N (a batch that needs a second pass takes longer).
"Clarabel" is the solver's own reported time, without its modelling layer and summed over the problems that a recovery
update consists of (N up to 10,000: best of five); "times" compares it with the best call and with "inside". Above
--largest Clarabel is not run.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from cppo.algos.cppo.estep import EStep, Status, solve

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "algos" / "cppo"))
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


@jax.jit
def empty(A, A_c, budget, variance, recovery) -> EStep:
    """Inputs and outputs of an E-step, and no work to speak of."""
    number, count = jnp.ravel(budget)[0] * variance, jnp.int32(recovery)
    return EStep(
        ratios=A + jnp.ravel(A_c)[0],
        status=count,
        case=count + 1,
        iterations=count + 2,
        repairs=count + 3,
        theta=number,
        theta_reward=number + 1,
        theta_feasible=number + 2,
        reward_change=number + 3,
        cost_change=jnp.ravel(budget) + 4,
        bound_share=number + 5,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--kind", choices=["normal", "heavy", "sparse"], default="normal")
    parser.add_argument("--constraints", type=int, default=1)
    parser.add_argument("--precision", type=int, choices=[32, 64], default=64)
    parser.add_argument("--largest", type=int, default=1_000_000, help="largest batch given to Clarabel (0: none)")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", arguments.precision == 64)
    warnings.simplefilter("ignore")
    dtype, m = (jnp.float64 if arguments.precision == 64 else jnp.float32), arguments.constraints
    solver = jax.jit(solve, static_argnames="exact")
    print(f"{arguments.kind} advantages, {m} constraint(s), float{arguments.precision}, {jax.devices()[0].device_kind}")
    print(
        f"{'N':>9} {'update':>8} {'call best/median ms':>19} {'floor':>6} {'inside ms':>9} {'ns each':>7} {'passes':>6}"
        f" {'Clarabel ms':>11} {'times call/inside':>17} {'gap':>6}  status"
    )
    for n in arguments.sizes:
        A, A_c, budget = batch(arguments.kind, n, m)
        for recovery in (False, True):
            values = (A, A_c[0], budget[0]) if m == 1 else (A, A_c, budget)
            inputs = [*(jnp.asarray(v, dtype) for v in values), jnp.asarray(VARIANCE, dtype), jnp.asarray(recovery)]
            step = solver(*inputs)
            times = 1e3 * clock(lambda x=inputs: solver(*x))
            count = max(2, min(200, 2_000_000 // n))
            run = repeated(count)
            inside = 1e3 * clock(lambda x=inputs, run=run: run(*x)).min() / count
            floor = 1e3 * clock(lambda x=inputs: empty(*x), 0.3).min()
            line = f"{n:>9,} {('normal', 'recovery')[recovery]:>8} {times.min():>9.3f} /{np.median(times):>8.3f}"
            line += f" {floor:>6.3f} {inside:>9.4f} {1e6 * inside / n:>7.1f} {int(step.iterations):>6}"
            if n <= arguments.largest:
                tries = range(5 if n <= 10_000 else 1)
                refs = [reference.solve(A, A_c, budget, VARIANCE, recovery, tolerance=1e-8) for _ in tries]
                ref, ms = refs[0], 1e3 * min(r.seconds for r in refs)
                if ref.branch == "descend":
                    gap = np.sum((np.asarray(step.cost_change) - ref.cost) / A_c.std(axis=1)) / np.sqrt(VARIANCE)
                else:
                    gap = (ref.reward - float(step.reward_change)) / A.std() / np.sqrt(VARIANCE)
                line += f" {ms:>11.1f} {ms / times.min():>7.0f} / {ms / inside:>7.0f} {gap:>6.0e}"
            else:
                line += f" {'-':>11} {'-':>7} / {'-':>7} {'-':>6}"
            print(f"{line}  {Status(int(step.status)).name}", flush=True)


if __name__ == "__main__":
    main()
