"""Options of commands, each written once: as a field of the dataclass that its command reads.

A field whose default is None is left to what it is passed on to, so that it is known what was
typed: an option without effect is an error. What it is then is shown as `usual`.
"""

from __future__ import annotations

import dataclasses
import inspect
import shlex
from collections.abc import Callable
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, NewType, Union, get_args, get_origin, get_type_hints

import typer

MOST_SEED = 2**63 - 1
Words = tuple[str, ...]
Integers = tuple[int, ...]
Numbers = tuple[float, ...]
Level = float | str
Levels = tuple[Level, ...]
Bytes = NewType("Bytes", int)
Seed = NewType("Seed", int)


def option(help: str, default: Any = None, usual: str = "", positional: bool = False) -> Any:
    """A field that is an option.

    Args:
      help: a few words.
      default: of the field.
      usual: what is used where None is.
      positional: whether it is typed without its name.
    """
    metadata = {"help": help, "usual": usual, "positional": positional}
    return dataclasses.field(default=default, metadata=metadata)


argument = partial(option, default=dataclasses.MISSING, positional=True)


def command(request: type[Any]) -> Callable[..., None]:
    """The command of a dataclass, for typer: fills its fields from what is typed, and runs it."""
    kinds = {name: _without_none(kind) for name, kind in get_type_hints(request).items()}

    def value(name: str, typed: Any) -> Any:
        _, read = READERS.get(kinds[name], (None, None))
        return typed if read is None or typed is None else read(name, typed)

    def call(**typed: Any) -> None:
        request(**{name: value(name, text) for name, text in typed.items()}).run()

    fields = dataclasses.fields(request)
    parameters = [_parameter(field, kinds[field.name]) for field in fields]
    call.__doc__ = request.__doc__
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return call


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[*(part for part in get_args(kind) if part is not NoneType)]


def _parameter(field: dataclasses.Field, kind: Any) -> inspect.Parameter:
    """The option of a field as typer wants it."""
    typed, _ = READERS.get(kind, (kind, None))
    help, required = field.metadata["help"], field.default is dataclasses.MISSING
    if field.metadata["positional"]:
        info = typer.Argument(help=help)
    elif field.default is False:
        info = typer.Option(f"--{field.name}", help=help)
    else:
        info = typer.Option(help=help, show_default=field.metadata["usual"] or True)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else as_typed(field.default),
        annotation=Annotated[typed | None if field.default is None else typed, info],
    )


def as_typed(value: Any) -> Any:
    """A value as it would be typed, if it is a list."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def passed_on(request: Any, function: Callable[..., Any]) -> dict[str, Any]:
    """The fields that a function has parameters for; what is None is left to its defaults."""
    parameters = inspect.signature(function).parameters
    return {k: v for k, v in vars(request).items() if k in parameters and v is not None}


def typed_again(name: str, request: Any, always: tuple[str, ...]) -> str:
    """What to type to get the same again: what differs from the defaults, and what is `always`."""
    words = ["osiris-jax", name]
    for field in dataclasses.fields(request):
        value, usual = getattr(request, field.name), field.metadata["usual"]
        if field.metadata["positional"]:
            words.append(str(value))
        elif value is not None:
            usual = type(value)(usual) if usual else field.default
            if value != usual or field.name in always:
                words += [f"--{field.name.replace('_', '-')}", str(as_typed(value))]
    return shlex.join(words)


def words(_: str, text: str) -> tuple[str, ...]:
    """The words between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _all(kind: Callable[[str], Any], what: str, name: str, text: str) -> tuple[Any, ...]:
    """What is between commas, each read as a number of this kind."""
    try:
        return tuple(kind(word) for word in words(name, text))
    except ValueError:
        raise ValueError(f"{name}: expected {what} with commas between, got {text!r}") from None


def levels(name: str, text: str) -> tuple[float | str, ...]:
    """Numbers, and the words that stand for a level chosen from the data."""
    from osiris_jax.pipeline.selection import AUTO, SELECTION

    choices = (AUTO, *SELECTION)

    def one(word: str) -> float | str:
        try:
            return word if word in choices else float(word)
        except ValueError:
            others = ", ".join(choices)
            raise ValueError(f"{name}: expected numbers, or {others}, got {word!r}") from None

    return tuple(map(one, words(name, text)))


def level(name: str, text: str) -> float | str:
    """One level: a number, or a word that stands for one chosen from the data."""
    typed = levels(name, text)
    if len(typed) != 1:
        raise ValueError(f"{name}: expected one level, got {text!r}")
    return typed[0]


def size_of_memory(name: str, text: str) -> int:
    """Bytes of a text such as 512M or 2GB."""
    from osiris_jax.core.memory import read_size

    return read_size(text, name)


def checked_seed(name: str, number: int) -> int:
    if not 0 <= number <= MOST_SEED:
        raise ValueError(f"{name}: expected an integer from 0 to {MOST_SEED}, got {number}")
    return number


READERS: dict[Any, tuple[type, Callable[[str, Any], Any]]] = {
    Words: (str, words),
    Integers: (str, partial(_all, int, "integers")),
    Numbers: (str, partial(_all, float, "numbers")),
    Level: (str, level),
    Levels: (str, levels),
    Bytes: (str, size_of_memory),
    Seed: (int, checked_seed),
}

out = partial(option, "Folder for tables and pictures.")
seed = partial(option, "Seed of all that is random.", 0)
tabular_world = partial(option, "A tabular world.")
trials = partial(option, "Independent data sets.")
sizes = partial(option, "Trajectories in a data set: 25,100.", (25, 100))
relevance = partial(option, "Test of osir...: welch.", usual="welch")
alpha = partial(option, "Level of relevance, or auto.", usual="0.05")
thresholds = partial(option, "Levels of effect and nn-q: 0.2,0.4.")
threshold = partial(option, "Level of effect and nn-q instead.")
weighting = partial(option, "to-go, future or none.", usual="none")
discount = partial(option, "In [0, 1].")
confidence = partial(option, "Of the intervals.", 0.95)
resamples = partial(option, "Of the bootstrap.", usual="1000")
