"""Statistics against SciPy, degenerate samples included."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracles as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from osiris_jax import stats

pytestmark = [
    pytest.mark.filterwarnings("ignore:Precision loss:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:One or more sample arguments is too small"),
]
TAIL_ERROR = {"float32": 1e-5, "float64": 1e-9}
RELATIVE = {"float32": 1e-3, "float64": 1e-9}

# one program for each shape, not one for each operation
_student_two_sided = jax.jit(stats.student_two_sided)
_segment_moments = jax.jit(stats.segment_moments, static_argnums=2)
_welch = jax.jit(stats.welch)
_welch_from_moments = jax.jit(stats.welch_from_moments)
_segment_smirnov = jax.jit(partial(stats.segment_smirnov, num_segments=9))
_smirnov = jax.jit(stats.smirnov)


def test_student_tail(float_type):
    df = np.concatenate([np.geomspace(1, 1e7, 400), [2, 3, 4, 4.999, 5, 19.999, 20, 30]])
    statistic = np.concatenate([[0], np.geomspace(1e-6, 1e6, 300), np.linspace(0, 12, 300)])
    grid = [x.astype(float_type) for x in np.meshgrid(statistic, df)]
    tail = _student_two_sided(*grid)
    assert tail.dtype == float_type
    expected = 2 * scipy_stats.t.sf(*(x.astype(float) for x in grid))
    np.testing.assert_allclose(tail, expected, rtol=0, atol=TAIL_ERROR[float_type])


def test_student_tail_at_the_ends(float_type):
    statistic = np.array([0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e30], float_type)
    df = np.array([3, 3, 100, 3, np.nan, 1, 1], float_type)
    expected = [1, 0, 0, np.nan, np.nan, 0.5, 0]
    np.testing.assert_allclose(_student_two_sided(statistic, df), expected, atol=1e-6)


def test_moments_far_from_zero(float_type):
    """E[x^2] - E[x]^2 has no correct digit here in float32."""
    rng = np.random.default_rng(0)
    value = rng.normal(1e6, 1.0, size=4000).astype(float_type)
    segment = rng.integers(4, size=4000)
    moments = _segment_moments(value, segment, 3)
    for s in range(3):
        group = value[segment == s].astype(np.longdouble)
        assert moments.size[s] == len(group)
        np.testing.assert_allclose(moments.mean[s], group.mean(), rtol=1e-7)
        np.testing.assert_allclose(moments.squares[s], group.var() * len(group), rtol=1e-5)


@pytest.mark.parametrize("value", [0.1, 1e6 / 3, -1e-20])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_equal_values_have_no_variance(value, size, float_type):
    x = np.full(size, value, float_type)
    moments = _moments_of_products(x)
    assert moments.squares[0] == 0
    np.testing.assert_allclose(moments.mean[0], x[0] * 1.1, rtol=1e-6)
    assert tuple(m[1] for m in map(np.asarray, moments)) == (0, 0, 0)


@jax.jit
def _moments_of_products(x):
    return stats.segment_moments(x * 1.1, jnp.zeros(len(x), int), 2)


def test_merging_is_taking_together(double):
    rng = np.random.default_rng(1)
    parts = [rng.normal(size=n) * 10**n for n in (0, 1, 4)]

    @jax.jit
    def merged_and_whole(parts):
        one = [stats.segment_moments(p, jnp.zeros(len(p), int), 1) for p in parts]
        whole = jnp.concatenate(parts)
        expected = stats.segment_moments(whole, jnp.zeros(len(whole), int), 1)
        return stats.merge(stats.merge(one[0], one[1]), one[2]), expected

    both, expected = merged_and_whole(parts)
    for actual, wanted in zip(both, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-13)


def test_leaving_the_outlier_out_keeps_all_digits(float_type):
    """Subtracting the outlier's sums from the total would leave nothing of the others."""
    value = np.array([3.0, 4.0, 6.0, 1e8, 5.0], float_type)
    each = stats.Moments(np.ones_like(value), value, np.zeros_like(value))
    others = jax.jit(stats.leave_one_out)(each)
    np.testing.assert_allclose(others.mean[3], 4.5, rtol=1e-6)
    np.testing.assert_allclose(others.squares[3], 5.0, rtol=1e-6)
    assert others.size.tolist() == [4, 4, 4, 4, 4]


SAMPLES = {
    "ordinary": ([1.0, 2.0, 4.0], [2.5, 7.0, 8.0, 9.5]),
    "one value": ([1.0], [2.0, 3.0, 4.0]),
    "two values": ([1.0, 1.5], [2.0, 3.0]),
    "constant and equal": ([2.0, 2.0], [2.0, 2.0, 2.0]),
    "constant and different": ([2.0, 2.0], [3.0, 3.0, 3.0]),
    "one constant": ([2.0, 2.0, 2.0], [1.0, 5.0]),
    "far from zero": ([1e6, 1e6 + 1, 1e6 + 2], [1e6 + 1, 1e6 + 3, 1e6 + 7]),
    "tiny": ([1e-15, 2e-15], [3e-15, 8e-15, 9e-15]),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_welch_is_scipys(name, float_type):
    first, second = (np.array(x, float_type) for x in SAMPLES[name])
    with np.errstate(all="ignore"):
        expected = scipy_stats.ttest_ind(first.astype(float), second.astype(float), equal_var=False)
    result = _welch(first, second)
    for field in ("statistic", "pvalue"):
        actual, wanted = getattr(result, field), getattr(expected, field)
        np.testing.assert_allclose(actual, wanted, rtol=RELATIVE[float_type], err_msg=field)
    if np.isfinite(expected.pvalue) and expected.pvalue > 0:
        np.testing.assert_allclose(result.df, expected.df, rtol=RELATIVE[float_type])


def test_welch_with_population_variances_of_single_values(double):
    """With ddof = 0 a single value has variance 0 and the NaN df becomes 1."""
    result = _welch(np.array([1.0]), np.array([2.0, 3.0, 4.0]), ddof=0)
    statistic = -2 / np.sqrt(np.var([2, 3, 4]) / 3)
    assert result.df == 1
    np.testing.assert_allclose(result.statistic, statistic, rtol=1e-14)
    np.testing.assert_allclose(result.pvalue, 2 * scipy_stats.t.sf(-statistic, 1), rtol=1e-9)


def test_welch_from_moments_is_welch(double):
    first, second = (np.array(x) for x in SAMPLES["ordinary"])
    both = (_segment_moments(x, np.zeros(len(x), int), 1) for x in (first, second))
    actual = _welch_from_moments(*both)
    for a, b in zip(actual, _welch(first, second), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=1e-14)


def test_an_empty_sample_is_undecided(float_type):
    empty = stats.Moments(*(np.zeros(1, float_type),) * 3)
    other = stats.Moments(*(np.array([x], float_type) for x in (3, 1, 2)))
    for ddof in (0, 1):
        assert np.isnan(_welch_from_moments(empty, other, ddof=ddof).pvalue[0])


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # in SciPy's asymptotics
@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_smirnov_in_all_segments_is_scipys(seed, coarse):
    """Segments of many sizes at once, ties, empty groups, left-out items; exact p-values."""
    rng = np.random.default_rng(seed)
    value = rng.normal(size=150)
    value = np.round(value) if coarse else value
    above = rng.random(150) < rng.choice([0.1, 0.5])
    segment = np.minimum(rng.geometric(0.25, size=150) - 1, 9)
    with jax.enable_x64(True):
        result = _segment_smirnov(value, above, segment)
    for s in range(9):
        first, second = value[(segment == s) & above], value[(segment == s) & ~above]
        if not len(first) or not len(second):
            assert np.isnan(result.pvalue[s])
            continue
        statistic = scipy_stats.ks_2samp(first, second, method="asymp").statistic
        np.testing.assert_allclose(result.statistic[s], statistic, rtol=1e-12)
        np.testing.assert_allclose(result.pvalue[s], oracle.smirnov(first, second), rtol=1e-9)
        assert result.exact[s]


@pytest.mark.parametrize(
    ("sizes", "exact"),
    [((500, 500), True), ((2, 3000), True), ((40, 700), True), ((501, 500), False)],
)
def test_smirnov_is_exact_up_to_the_limit(sizes, exact, float_type):
    rng = np.random.default_rng(3)
    first, second = (rng.normal(size=n).astype(float_type) for n in sizes)
    result = _smirnov(first, second + np.float32(0.1))
    method = "exact" if exact else "asymp"
    expected = scipy_stats.ks_2samp(first, second + np.float32(0.1), method=method)
    assert result.exact == exact
    tolerance = RELATIVE[float_type] if exact else 1e-4
    np.testing.assert_allclose(result.pvalue, expected.pvalue, rtol=tolerance)


@pytest.mark.parametrize(("sizes", "error"), [((3000, 4000), 1e-5), ((150, 9000), 1e-4)])
def test_smirnov_is_asymptotic_beyond(sizes, error, float_type):
    rng = np.random.default_rng(4)
    for shift in (0.0, 0.02, 0.05, 0.1, 0.3):
        first, second = (rng.normal(size=n).astype(float_type) for n in sizes)
        second = (second + shift).astype(float_type)
        result = _smirnov(first, second)
        expected = scipy_stats.ks_2samp(first, second, method="asymp")
        assert not result.exact
        np.testing.assert_allclose(result.pvalue, expected.pvalue, rtol=0, atol=error)


def test_medians_of_segments():
    rng = np.random.default_rng(0)
    value, segment = rng.normal(size=40).astype("float32"), rng.integers(5, size=40)
    expected = [np.median(value[segment == k]) for k in range(5)]
    found = jax.jit(stats.segment_median, static_argnums=2)(value, segment, 5)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
