"""Commands run inside the test's own process."""

import sys

import pytest

from osiris_jax import cli


def run(monkeypatch, *arguments):
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["osiris-jax", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code or 0


def refusal(monkeypatch, capsys, *arguments):
    """What a command says that ends with exit code 2: one line on standard error, else nothing."""
    assert run(monkeypatch, *arguments) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.startswith("osiris-jax: ")
    (line,) = printed.err.splitlines()
    return line


def refused(monkeypatch, capsys, out, *arguments):
    """The same of a command that would write to a folder, and has not made it."""
    line = refusal(monkeypatch, capsys, *arguments, "--out", out)
    assert not out.exists()
    return line
