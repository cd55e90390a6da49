"""Shared by all tests: checked shapes and ranks, a compilation cache, both float types."""

import os
import tempfile
from pathlib import Path

CACHE = Path(tempfile.gettempdir()) / "osiris-jax-test-cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

CHECKED = ("core.masked", "stats", "models.empirical", "models.qhat", "models.tabular")
CHECKED += ("models.neural", "models.layers", "relevance", "estimators", "pipeline.selection")
CHECKED += ("models.descent",)
CHECKED += ("inference.welch", "inference.forms", "inference.resampling", "paper")
install_import_hook([f"osiris_jax.{name}" for name in CHECKED], "beartype.beartype")

settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("quick")


@pytest.fixture(autouse=True, scope="module")
def _forget_compilations():
    """Frees what a module compiled: Linux ends a process with too many mapped pieces of code."""
    yield
    jax.clear_caches()


@pytest.fixture(params=["float32", "float64"])
def float_type(request):
    """Runs the test once in each float type."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.fixture
def double():
    """Runs the test in float64."""
    with jax.enable_x64(True):
        yield
