"""Trains the policies that come with cppo, by the presets, and writes them with their records.

    python scripts/make_pretrained.py --runs runs/pretrained                    # all: hours on one core
    python scripts/make_pretrained.py --runs runs/pretrained --only PointCircle # seconds
    python scripts/make_pretrained.py --of runs/study-push/runs/RUN             # of a run of one seed that stands

Seed 0, chosen before anything was trained, whatever comes of it. Of a run's policies the *best feasible* one is taken:
the highest return among evaluations while training whose cost is within the limit by its upper bound; the last one
where there is none, or where the run was not evaluated. Its record is measured afterwards, on 200 fresh episodes. A run
that stands is gone on with, so the same command continues after a stop. What only an optimiser remembers is left out of
the file.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np

from cppo.policies.evaluate import fresh_worlds, interval, rollout
from cppo.runs import checkpoint
from cppo.runs.options import Options, seconds_of
from cppo.runs.plan import make_plan
from cppo.runs.pretrained import HOME
from cppo.runs.run import Run
from cppo.runs.sealed import write_json
from cppo.runs.training import ensure

SEED, EPISODES, EVALUATION_SEED = 0, 200, 2_000_000
# Steps (the preset's), steps between evaluations, episodes of each. ``--stop-after`` ends sooner, and records say so.
PLANS = {
    "PointCircle": (200_000, 20_000, 200),
    "PointGoal1": (10_000_000, 1_000_000, 90),
    "AntCircle": (10_000_000, 250_000, 60),
    "PointPush1": (10_000_000, 250_000, 60),
    "CarPush1": (10_000_000, 250_000, 60),
}
# A last policy moves around its limit: trained with a lower one, it keeps the benchmark's.
LIMITS = {"PointGoal1": 20.0}


def train(env: str, runs: Path, stop_after: float | None = None) -> Run:
    steps, every, episodes = PLANS[env]
    limit = LIMITS.get(env)
    plan = make_plan("cppo", env, seed=SEED, steps=steps, cost_limit=limit, eval_every=every, eval_episodes=episodes)
    return chosen(ensure(plan, runs / env, Options(tensorboard=False, stop_after=stop_after)).folder)


def chosen(folder: Path) -> Run:
    best = (checkpoint.checkpoints_of(folder) / checkpoint.BEST).is_file()
    return Run(folder, checkpoint="best" if best else "last")


def record(run: Run) -> dict:
    """What the policy does, and of what run it is."""
    env = fresh_worlds(run.plan, 50)
    found = {}
    for actions in ("sampled", "deterministic"):
        totals = rollout(run.policy(run.plan.seeds[0]), env, EPISODES, actions == "deterministic", EVALUATION_SEED)
        costs = {
            name: interval(totals.cost[:, i]) | {"share_over": float(np.mean(totals.cost[:, i] > limit))}
            for i, (name, limit) in enumerate(run.plan.cost_limits.items())
        }
        found[actions] = {"return": interval(totals.reward), "cost": costs}
    versions = json.loads((run.folder / "versions.json").read_text())
    return {
        "env": run.plan.env,
        "algo": run.plan.algo,
        "seed": run.plan.seeds[0],
        "steps": run.steps,
        "trained_steps": run.plan.iterations * run.plan.settings.batch_size,
        "chosen": run.checkpoint,
        "git_commit": versions["git_commit"],
        "cost_limits": run.plan.cost_limits,
        "episodes": EPISODES,
        "evaluation_seed": EVALUATION_SEED,
        **found,
    }


def write(run: Run, folder: Path) -> None:
    """The policy, its critics and the normaliser, with the files that a run is opened by."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "versions.json", "summary.json"):
        if (run.folder / name).is_file():  # a run that was stopped before its end has no summary
            shutil.copyfile(run.folder / name, folder / name)
    arrays, _ = checkpoint.load(run.parameters_file())
    kept = {
        name: array
        for name, array in arrays.items()
        if name.startswith("agent.") and not name.startswith("agent.extra") and checkpoint.OPTIMISER not in name
    }
    data, _ = checkpoint.encode(kept, run.iteration(), {"source": f"{run.checkpoint}.safetensors"})
    (folder / checkpoint.MODEL).write_bytes(data)
    write_json(folder / "record.json", record(run))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--runs", type=Path, help="where runs are trained, or gone on with")
    given.add_argument("--of", type=Path, help="a run that is taken as it is")
    parser.add_argument("--only", nargs="*", choices=PLANS, default=list(PLANS))
    parser.add_argument("--stop-after", help="of each run, for example 30m: what is there then is taken")
    parser.add_argument("--out", type=Path, default=HOME)
    asked = parser.parse_args()
    stop_after = asked.stop_after and seconds_of(asked.stop_after)
    for run in [chosen(asked.of)] if asked.of else (train(env, asked.runs, stop_after) for env in asked.only):
        write(run, asked.out / run.plan.env)
        print((asked.out / run.plan.env / "record.json").read_text())


if __name__ == "__main__":
    main()
