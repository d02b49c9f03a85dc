"""What a limit costs: the same training under several limits, and the figure of return and cost against the limit.

python examples/limit_sweep.py              # then see runs/limits/limits-PointCircle.png
"""

import sys
from pathlib import Path

from cppo.reports import figures, records
from cppo.study.definition import Part, Study
from cppo.study.execute import StudyOptions, execute


def main(steps=100_000, out="runs/limits", limits=(1.0, 2.5, 5.0, 7.5), env="PointCircle", seeds=2, **settings):
    variants = {f"limit {limit:g}": {"cost_limit": (limit,)} for limit in limits}
    part = Part(envs=[env], seeds=seeds, steps=steps, settings=settings, variants=variants)
    done = execute(Study("limits", [part]), Path(out), StudyOptions())  # the same call goes on after a stop
    if done.failed:
        raise SystemExit(f"failed: {done.failed}")
    return [path for path in figures.write(records.load(Path(out)), Path(out)) if path.suffix == ".png"]


if __name__ == "__main__":
    print(*main(*map(int, sys.argv[1:])))
