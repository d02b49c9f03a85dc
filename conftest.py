"""Set before any test imports JAX: most of the tests' time is compilation, so compile quickly, and only once."""

import ctypes
import os
from pathlib import Path

import hypothesis
import pytest

QUICK = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Runs that tests start are nobody's own (cppo.runs.own).
os.environ["XDG_STATE_HOME"] = str(Path(__file__).parent / ".pytest_cache" / "state")

# Examples may take their time on a machine that is busy with something else.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")

# After the environment above: jaxtyping imports JAX. Shapes and types of whatever the tests call are checked.
import jax  # noqa: E402
import jaxtyping  # noqa: E402

CHECKED = ["cppo.algos", "cppo.maths", "cppo.networks", "cppo.runs"]
INT_IS_FLOAT = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
jaxtyping.install_import_hook(CHECKED, INT_IS_FLOAT)


OPTIMISED = ("optimised", "slow")


@pytest.fixture(autouse=True)
def compiled(request, monkeypatch):
    """What trains for long is optimised, also in processes that a test starts."""
    if not any(request.node.get_closest_marker(name) for name in OPTIMISED):
        yield
        return
    before = jax.config.read("jax_disable_most_optimizations")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module", autouse=True)
def memory_is_given_back():
    """Compiling leaves hundreds of megabytes in small pieces, which the C library keeps unless it is asked."""
    yield
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # GNU's
    if trim is not None:
        trim(0)
