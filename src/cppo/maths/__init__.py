"""The mathematics that algorithms share, each idea in one file: advantages, distributions, the cost contract, duals."""
