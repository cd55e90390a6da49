"""Shared by all tests: checked shapes and ranks, quick compilations, both float types.

Four fifths of the time went into compiling, so XLA optimises nothing here. What a test starts in
another process runs as users run it, unless it is in a hurry too; so does all of
`OSIRIS_JAX_TESTS=optimised pytest`.
"""

import gc
import math
import os
import signal
import tempfile
from importlib.metadata import version
from pathlib import Path

CACHE = Path(tempfile.gettempdir()) / "osiris-jax-test-cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")

UNOPTIMISED = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
HURRIES = os.environ.get("OSIRIS_JAX_TESTS") != "optimised" and "XLA_FLAGS" not in os.environ
if not version("jaxlib").startswith("0.10."):  # XLA ends a process for words it forgot
    HURRIES = False
FLAGS = " ".join(f"--{flag}={value}" for flag, value in UNOPTIMISED.items())
IN_A_HURRY = {"XLA_FLAGS": FLAGS} if HURRIES else {}  # for processes that compile more than compute
os.environ.update(IN_A_HURRY)

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

CHECKED = ("core.masked", "stats", "models.empirical", "models.qhat", "models.tabular")
CHECKED += ("models.neural", "models.layers", "relevance", "estimators", "pipeline.selection")
CHECKED += ("models.descent", "models.simplex")
CHECKED += ("inference.welch", "inference.forms", "inference.resampling", "paper")
install_import_hook([f"osiris_jax.{name}" for name in CHECKED], "beartype.beartype")

from osiris_jax.core import compiled  # noqa: E402

if HURRIES:
    jax.devices()  # reads the flags, which are not for the processes that tests start
    os.environ.pop("XLA_FLAGS", None)
    compiled.HURRY |= UNOPTIMISED

MOST_PIECES = 20_000  # of the 65,530 that Linux allows: a module may add thousands
compiled.MOST_PROGRAMS = 1000  # tests share more of them than a user does
gc.set_threshold(20_000, 20, 20)  # tracing makes many objects, few of them garbage

# a shell ignores Ctrl-C for what it starts in the background, and so for what tests start
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("quick")


# begun last, one of these would keep a single worker busy while the others have nothing left
SLOWEST_FIRST = (
    *("test_contract", "test_resamples", "test_study", "test_notebooks", "test_surface"),
    *(
        "test_many_logs",
        "test_oracle",
        "test_paper_tables",
        "test_relevance_oracle",
        "test_relevance_contract",
    ),
    *("test_reproduce_command", "test_calibration", "test_engine", "test_doubly_robust"),
    *("test_study_command", "test_selection", "test_intervals", "test_bench", "test_fuzz"),
)


def pytest_collection_modifyitems(items):
    """The slowest files first, in this order; the others as they come."""
    order = {name: place for place, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(autouse=True, scope="module")
def _forget_compilations():
    """Frees what was compiled before Linux ends a process with too many mapped pieces of code.

    Not after every module: the next ones would trace and compile again what they share. So there
    are millions of objects, and a search for garbage among those of modules before finds none.
    """
    gc.collect()
    gc.freeze()
    yield
    if compiled.pieces() > MOST_PIECES:
        gc.unfreeze()
        jax.clear_caches()


@pytest.fixture(params=["float32", "float64"])
def float_type(request):
    """Runs the test once in each float type."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.fixture
def all_kept(monkeypatch):
    """Releases no program while a test counts them."""
    monkeypatch.setattr(compiled, "MOST_PROGRAMS", math.inf)
    monkeypatch.setattr(compiled, "MOST_PIECES", math.inf)


@pytest.fixture
def double():
    """Runs the test in float64."""
    with jax.enable_x64(True):
        yield
