"""What is made once for many runs: compiled programs, parsed commands. For tests that open hundreds of folders.

What a file names is looked up as ever before a learner is asked for; a learner whose settings name anything but parts
of cppo is built anew each time.
"""

import copy
import json
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

from cppo.commands import cli
from cppo.reports import measure
from cppo.runs import group, learner, run

LEARNERS, PROGRAMS, PARSED = {}, {}, {}
learner_for, parse = learner.learner_for, cli.parse


def keep(monkeypatch):
    """For the length of a test; all tests of a process share what is kept."""
    for module in (group, run, measure):
        monkeypatch.setattr(module, "learner_for", kept_learner)
    monkeypatch.setattr(measure, "jax", SimpleNamespace(**{**vars(jax), "jit": kept_program}))
    monkeypatch.setattr(cli, "parse", kept_command)


def draw_nothing(monkeypatch):
    """Figures lie where they would, but are empty: drawing is most of what a report takes."""
    save = Figure.savefig

    def savefig(figure, *where, **how):
        figure.clear()
        save(figure, *where, **how)

    monkeypatch.setattr(Figure, "savefig", savefig)


def kept_learner(plans, inside=None):
    if any(plan.backend != "jax" or ":" in f"{plan.algo} {plan.env} {plan.settings.encoder}" for plan in plans):
        return learner_for(plans, inside)
    key = json.dumps([[plan.saved() | {"steps": 0, "init_from": None} for plan in plans], inside is None])
    if key not in LEARNERS:
        made = LEARNERS[key] = learner_for(plans, inside)
        made.start = partial(_started, made, made.start, {})
    return LEARNERS[key]


def _started(made, start, states, restart=0):
    """The state itself is given to the program that goes on from it."""
    if restart not in states:
        states[restart] = start(restart)
    return jax.tree.map(jnp.copy, states[restart])


def kept_program(function, **how):
    parts = (function.func, *map(id, function.args)) if isinstance(function, partial) else function
    if (parts, *how) not in PROGRAMS:
        PROGRAMS[parts, *how] = function, jax.jit(function, **how)  # what is kept has its id for good
    return PROGRAMS[parts, *how][1]


def kept_command(argv):
    """Training is parsed anew, for its options may come from a file."""
    if argv[0] == "train":
        return parse(argv)
    if tuple(argv) not in PARSED:
        PARSED[tuple(argv)] = parse(argv)
    return copy.deepcopy(PARSED[tuple(argv)])
