"""What an estimation uses of its options: one that cannot have an effect is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from osiris_jax.core.options import RELEVANCE, given, keywords
from osiris_jax.estimators import function_of, name_of, parse_name
from osiris_jax.models.qhat import QHAT
from osiris_jax.pipeline import compose, selection
from osiris_jax.relevance import THRESHOLDS

METHODS = (selection.AUTO, *selection.SELECTION)
OF_OMISSION = ("relevance", "alpha", "threshold", "weighting", "ddof", "max_kept", "levels")
_OF_FIT = ("fit", "q_folds", "smoothing")
_ALWAYS = ("discount", "key")


class Use(NamedTuple):
    """An estimator, the test whose omission comes first, and what chooses its level.

    Attributes:
      estimator: a name in `ESTIMATORS`, or a function in place of one.
      relevance: a name in `RELEVANCE`; None omits nothing.
      method: a name in `SELECTION`; None where the level is a number.
    """

    estimator: compose.Estimator
    relevance: str | None
    method: str | None

    @classmethod
    def of(
        cls,
        plain_name: compose.Estimator,
        relevance: str | None,
        alpha: Any,
        threshold: Any = None,
    ) -> Use:
        """With the level's word, if it is one, understood."""
        if relevance is not None:
            compose.test_for(plain_name, relevance)
        if relevance is None:
            return cls(plain_name, None, None)
        if relevance in THRESHOLDS and threshold is not None:
            return cls(plain_name, relevance, chooser("threshold", threshold))
        return cls(plain_name, relevance, chooser("alpha", alpha))

    @property
    def functions(self) -> list[Callable]:
        """The kernels whose options it takes."""
        found: list[Callable] = [function_of(self.estimator)]
        if self.relevance is not None:
            found.append(compose.test_for(self.estimator, self.relevance))
        return found + ([selection.SELECTION[self.method]] if self.method is not None else [])

    def why_idle(self, name: str, settings: Mapping[str, Any]) -> str | None:
        """Why an option cannot have an effect here, beside these others; None where it has one."""
        if name in _ALWAYS:
            return None
        if name in OF_OMISSION:
            return self._why_idle_in_omission(name, settings)
        if name == "theta" and self.relevance is not None:
            return f"found by `{self.relevance}`; give one of the two"
        if name in _OF_FIT and name in keywords(function_of(self.estimator)):
            return _why_idle_in_fit(name, settings)
        if any(name in keywords(function) for function in self.functions):
            return None
        return f"`{name_of(self.estimator)}` has no such option"

    def _why_idle_in_omission(self, name: str, settings: Mapping[str, Any]) -> str | None:
        if self.relevance is None:
            name = name_of(self.estimator)
            named = isinstance(self.estimator, str) and name != "dm"
            other = f'; "osiris-{name}" does' if named else ""
            return f"has no effect, for `{name}` omits nothing{other}"
        test = compose.test_for(self.estimator, self.relevance)
        by_threshold = self.relevance in THRESHOLDS
        word = self.method is not None and settings.get("threshold") is None
        for option, idle, reason in (
            ("alpha", by_threshold and not word, f"`{self.relevance}` has a threshold instead"),
            ("threshold", not by_threshold, f"only for relevance by {', '.join(THRESHOLDS)}"),
            ("levels", self.method is None, 'only where a level is chosen, as by alpha="auto"'),
            (
                "max_kept",
                compose.is_by_lag(self.estimator),
                _BY_LAG.format(name_of(self.estimator)),
            ),
            *((x, x not in keywords(test), _NOT_USED.format(self.relevance)) for x in _OF_TEST),
        ):
            if name == option and idle:
                return reason
        return None


_OF_TEST = ("weighting", "ddof")
_NOT_USED = "has no effect, for the test `{}` does not use it"
_BY_LAG = "`{}` omits by lag, not the whole ratio of a step"


def chooser(name: str, level: Any) -> str | None:
    """The name in `SELECTION` that a level's word asks for; None for a number.

    Raises:
      ValueError: it is another word.
    """
    if not isinstance(level, str):
        return None
    if level not in METHODS:
        raise ValueError(f"{name}: expected a number or one of {', '.join(METHODS)}, got {level!r}")
    return selection.DEFAULT_METHOD if level == selection.AUTO else level


def listed(label: str, relevance: str | None, settings: Mapping[str, Any]) -> Use:
    """What an estimator in a list uses: there only names that begin with "osir" omit."""
    plain_name, omits = parse_name(label)
    usual = RELEVANCE if relevance is None else relevance
    test = usual if omits else None
    return Use.of(plain_name, test, settings.get("alpha"), settings.get("threshold"))


def refuse_idle(settings: Mapping[str, Any], uses: Sequence[Use]) -> None:
    """Raises a ValueError for the first option given that no estimator would use."""
    for name, value in settings.items():
        if not given(value):
            continue
        reasons = [use.why_idle(name, settings) for use in uses]
        if all(reasons):
            omitting = [why for use, why in zip(uses, reasons, strict=True) if use.relevance]
            raise ValueError(f"{name}: {(omitting or reasons)[0]}")


def _why_idle_in_fit(name: str, settings: Mapping[str, Any]) -> str | None:
    for supplied in ("q", "q_steps"):
        if settings.get(supplied) is not None:
            return f"has no effect, for nothing is fitted where `{supplied}` is given"
    fit = settings.get("fit", "tabular")
    if name == "smoothing" and fit in QHAT and name not in keywords(QHAT[fit]):
        return f"has no effect on the fit `{fit}`"
    return None
