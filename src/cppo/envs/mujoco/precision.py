"""Float64 on the CPU for host environments, in a process whose learner uses float32 and perhaps a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def double_on_cpu() -> Iterator[None]:
    """JAX calls inside compute on the CPU, and keep float64."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]), jax.enable_x64(True):
        yield
