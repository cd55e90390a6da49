"""The tables of Shen et al. 2021 as printed: every number, and which are set in bold."""

from __future__ import annotations

from typing import NamedTuple

from osiris_jax.study.plan import ON_POLICY, Cell

GRIDWORLDS = ("dilly-dallying", "express")
STATISTICS = ("mean", "std", "rmse")
ALPHA, SMIRNOV_ALPHA, THRESHOLD = 0.05, 0.2, 0.4
BY_RETURN = "welch:classes=return"
ALGORITHM_1 = "Algorithm 1"


class Column(NamedTuple):
    """A column of a table: an estimator, and how its relevance is found.

    Attributes:
      heading: what the paper calls the way to find relevance; "" without one.
    """

    estimator: str
    relevance: str | None = None
    alpha: float | None = None
    threshold: float | None = None
    heading: str = ""

    @property
    def is_random(self) -> bool:
        """Whether the paper's code was random beyond its data, so that digits may differ."""
        return self.relevance in (BY_RETURN, "nn-q")

    def cell(self, size: int) -> Cell:
        """The column as a row of a summary."""
        return Cell(self.estimator, self.relevance, self.alpha, self.threshold, size)


class Printed(NamedTuple):
    """A number as it is printed, and whether it is in bold."""

    text: str
    bold: bool

    @property
    def decimals(self) -> int:
        return len(self.text.partition(".")[2])

    def is_matched_by(self, value: float) -> bool:
        """Whether the value, rounded as the paper rounds, gives this text."""
        return f"{value:z.{self.decimals}f}" == self.text


class PaperTable(NamedTuple):
    """A table of the paper.

    Attributes:
      title: what it shows.
      columns: from left to right.
      numbers: world -> statistic -> one number for each column.
      beside: further columns that the paper compares it with.
    """

    title: str
    columns: tuple[Column, ...]
    numbers: dict[str, dict[str, tuple[Printed, ...]]]
    beside: tuple[Column, ...] = (Column(ON_POLICY),)

    @property
    def computed(self) -> tuple[Column, ...]:
        """All columns, the on-policy one, which may be the truth, last."""
        both = (*self.columns, *self.beside)
        others = dict.fromkeys(column for column in both if column.estimator != ON_POLICY)
        return (*others, Column(ON_POLICY))


def _both(relevance: str, alpha: float | None, threshold: float | None, heading: str):
    names = ("osiris", "osirwis")
    return tuple(Column(name, relevance, alpha, threshold, heading) for name in names)


def _read(text: str, columns: tuple[Column, ...]) -> dict[str, dict[str, tuple[Printed, ...]]]:
    """A world's name, then a line for each statistic; * before what is bold."""
    numbers = {}
    lines = [line.split() for line in text.strip().splitlines()]
    for first in range(0, len(lines), 4):
        (world,), *rows = lines[first : first + 4]
        numbers[world] = {
            statistic: tuple(Printed(word.removeprefix("*"), word[0] == "*") for word in words)
            for statistic, *words in rows
        }
        assert all(len(row) == len(columns) for row in numbers[world].values())
        assert tuple(numbers[world]) == STATISTICS
    return numbers


_PLAIN = tuple(Column(name) for name in ("is", "wis", "phwis", "incris", "mis"))
_WELCH = _both("welch", ALPHA, None, ALGORITHM_1)
_COLUMNS_1 = (*_PLAIN, *_WELCH, Column(ON_POLICY))
_COLUMNS_S1 = (
    *_WELCH,
    *_both(BY_RETURN, ALPHA, None, "by return"),
    *_both("smirnov", SMIRNOV_ALPHA, None, "Smirnov"),
    *_both("nn-q", None, THRESHOLD, "NN as Q"),
    Column(ON_POLICY),
)
_COLUMNS_S2 = _both("oracle", None, None, "oracle")

_TABLE_1 = """
dilly-dallying
mean  *3.5     1.1  -0.3   -0.1   5.8    1.3    1.1    4.3
std    6.8     3.5  *1.0    4.8   1.6    2.0    1.8    0.6
rmse   6.9     4.7   4.7    6.5  *2.2    3.6    3.7    0.6
express
mean   3.0     2.7   0.3   *4.3   5.1    0.7    0.8    4.3
std    3.5     2.2  *1.1    4.0   1.7    1.2    1.3    0.6
rmse   3.7     2.7   4.1    4.0  *1.9    3.8    3.7    0.6
cartpole
mean *1073.5  452.2  608.2 1048.4 2498.6 1068.9  759.7 1503.6
std  10202.2  272.5  *97.6 4437.7  583.1 3961.8  318.5  244.8
rmse 10211.3 1086.1  900.7 4461.0 1153.3 3985.5 *809.2  244.8
lunar-lander
mean   305.6  264.2  239.6   83.8  281.9 *244.6  234.8  245.3
std    768.7   14.9   *9.1  149.6  139.6   55.3   23.5    6.8
rmse   771.1   24.1  *10.7  220.2  144.3   55.3   25.7    6.8
"""

_TABLE_S1 = """
dilly-dallying
mean  *1.3    1.1    0.5   0.4    0.5   0.5   0.9   0.0    4.3
std    2.0    1.8   *1.7   1.8    1.7   1.8   5.3   2.4    0.6
rmse  *3.6    3.7    4.2   4.3    4.1   4.2   6.3   4.9    0.6
express
mean   0.7    0.8    0.7  *0.9    0.5   0.6   0.7   0.3    4.3
std   *1.2    1.3    1.3   1.5    1.3   1.4   2.9   2.1    0.6
rmse   3.8   *3.7    3.8   3.7    4.0   4.0   4.6   4.5    0.6
cartpole
mean *1068.9 759.7  970.0 622.3  582.0 640.7 608.2 608.2 1503.6
std  3961.8  318.5 5337.1 381.8  619.0 308.3 *97.6 *97.6  244.8
rmse 3985.5 *809.2 5363.7 960.4 1110.2 916.3 900.7 900.7  244.8
lunar-lander
mean *244.6  234.8  241.2 259.7  286.9 248.9 222.9 249.4  245.3
std    55.3   23.5  230.3 *13.5  171.7  16.3  62.0  14.4    6.8
rmse   55.3   25.7  230.3  19.7  176.6  16.7  65.9 *15.0    6.8
"""

_TABLE_S2 = """
dilly-dallying
mean 3.1 3.4
std  1.9 1.2
rmse 2.3 1.5
express
mean 2.9 2.9
std  3.1 1.8
rmse 3.4 2.3
"""

TABLES = {
    "table1": PaperTable(
        "Table 1: estimators based on importance sampling",
        _COLUMNS_1,
        _read(_TABLE_1, _COLUMNS_1),
    ),
    "tableS1": PaperTable(
        "Table S1: other ways to find relevance", _COLUMNS_S1, _read(_TABLE_S1, _COLUMNS_S1)
    ),
    "tableS2": PaperTable(
        "Table S2: relevance from the oracle map",
        _COLUMNS_S2,
        _read(_TABLE_S2, _COLUMNS_S2),
        beside=(*_WELCH, Column(ON_POLICY)),
    ),
}
