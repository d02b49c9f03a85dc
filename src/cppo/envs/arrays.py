"""The type of arrays that host environments and task logic share.

The same functions take NumPy arrays on the host, JAX arrays on a device and tracers inside jit, which static checkers
keep apart.
"""

from typing import Any

Array = Any
Key = Any
