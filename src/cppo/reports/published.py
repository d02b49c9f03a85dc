"""Other people's figures, as return / cost at the end of training, to stand beside ours.

``_PAPER`` was read by eye off Figures 3 and 4 of Xuan et al. 2023; ``_OMNISAFE`` is OmniSafe's benchmark table for
1e7 steps and limit 25. Environments and settings are not identical to ours: yardsticks, not targets of equality.
"""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    reward: float
    cost: float
    source: str


_PAPER = {
    "CarPush1": {"cppo": (1.6, 21), "cpo": (1.6, 37), "ppo_lag": (1.1, 16), "trpo_lag": (1.6, 25)},
    "PointGoal1": {"cppo": (23.5, 25), "cpo": (25.5, 39), "ppo_lag": (21, 26), "trpo_lag": (19.5, 25)},
    "PointPush1": {"cppo": (2.6, 20), "cpo": (2.8, 33), "ppo_lag": (0.7, 20), "trpo_lag": (1.6, 30)},
    "PointCircle": {"cppo": (85, 5.5), "cpo": (122, 7.5), "ppo_lag": (9, 1.5), "trpo_lag": (41, 2.9)},
    "AntCircle": {"cppo": (168, 44), "cpo": (102, 105), "ppo_lag": (18, 160), "trpo_lag": (7, 90)},
}
_WITHOUT_RECOVERY = {"PointCircle": (230, 17)}
_OMNISAFE = {
    "PointGoal1": {
        "ppo": (25.4, 55.7),
        "trpo": (27.2, 45.9),
        "ppo_lag": (13.0, 25.8),
        "trpo_lag": (18.5, 23.0),
        "cpo": (20.5, 28.8),
        "pcpo": (18.6, 23.0),
        "focops": (15.0, 33.7),
        "ppo_pid": (8.4, 25.7),
        "trpo_pid": (19.2, 21.4),
    }
}


# Returns to ask of a method early: two thirds of where the paper's CPPO ends, PointGoal1's as in published records.
WANTED = {"CarPush1": 1.0, "PointGoal1": 15.0, "PointPush1": 1.7, "PointCircle": 55.0, "AntCircle": 110.0}


def figures(env: str, algo: str, variant: str = "") -> list[Figure]:
    """What others report for an algorithm on an environment."""
    if variant:
        found = _WITHOUT_RECOVERY.get(env) if (algo, variant) == ("cppo", "no recovery") else None
        return [Figure(found[0], found[1], "paper, Figure 4")] if found else []
    sources = (("paper, Figure 3", _PAPER), ("OmniSafe", _OMNISAFE))
    known = [(name, table[env][algo]) for name, table in sources if algo in table.get(env, {})]
    return [Figure(reward, cost, name) for name, (reward, cost) in known]
