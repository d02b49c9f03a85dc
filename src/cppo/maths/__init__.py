"""The mathematics, each idea in one file: advantages, distributions, the cost contract, E-step, M-step."""

from cppo.maths import estep

__all__ = ["estep"]
