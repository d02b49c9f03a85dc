"""Fine-tuning under a tighter limit: from the policy that comes with cppo (limit 5) to one that costs at most 3.

python examples/tighter_limit.py

``--init-from`` does the same on the command line; it takes a run's folder, too.
"""

import sys

import cppo

START = "pretrained:PointCircle"


def costs(run, episodes):
    """Mean return and cost with sampled actions, which a limit bounds."""
    found = next(row for row in cppo.evaluate(run, episodes)["policies"] if row["actions"] == "sampled")
    return found["return"]["mean"], found["cost"]["cost"]["mean"]


def main(steps=60_000, out="runs/tighter", episodes=200, **settings):
    before = costs(cppo.load(START), episodes)
    run = cppo.train(
        "cppo",
        "PointCircle",
        init_from=START,
        cost_limit=3.0,
        steps=steps,
        settings=settings,
        out=out,
        overwrite=True,
        eval_every=max(steps // 10, 1),  # and keep the best policy that is surely within the limit
        eval_episodes=episodes,
    )
    return run, before, costs(run, episodes)


if __name__ == "__main__":
    run, before, after = main(*map(int, sys.argv[1:]))
    for when, (earned, cost) in (("before", before), ("after", after)):
        print(f"{when}: return {earned:.1f}, cost {cost:.2f}")
    print("best:", run.summary["best"])
