"""How a command ends: one line for what the user can mend, and at once when it is stopped."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from osiris_jax.core.files import Stopped
from osiris_jax.core.text import encodable, one_line, printable

STOPPED = 130  # as shells do for Ctrl-C
PATIENCE = 1.0  # seconds for Python to end by itself
_hints: list[str] = []


def finish(command: Callable[[], int | None]) -> int:
    """Runs a command and returns its exit code; what the user can mend is one line and code 2."""
    try:
        with ends_when_stopped():
            code = command() or 0
        problem = "stopped" if code == STOPPED else ""
    except typer.TyperException as error:
        code, problem = 2, error.format_message()
    except (ValueError, ModuleNotFoundError, OSError) as error:
        code, problem = 2, str(error)
    except MemoryError as error:
        code, problem = 2, f"memory: this does not fit ({error})"
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        code, problem = 2, f"memory: this does not fit ({one_line(error)})"
    except Stopped as stop:
        code, problem = STOPPED, f"stopped: {stop}"
    except KeyboardInterrupt:
        code, problem = STOPPED, "stopped"
    if problem:
        complain(problem)
    return code


def complain(problem: str) -> None:
    """The problem as one line on standard error."""
    line = printable(" ".join(problem.split()))
    print("osiris-jax:", encodable(line, sys.stderr.encoding), file=sys.stderr, flush=True)


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """While what is finished is kept in a folder: whoever stops it is told so."""
    hint = f"what is finished is in {out}; the same command goes on"
    _hints.append(hint)
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(hint) from None
    finally:
        _hints.pop()


@contextmanager
def ends_when_stopped() -> Iterator[None]:
    """Sees to it that Ctrl-C ends the process, even if nobody lets the exception through.

    Python raises KeyboardInterrupt in the main thread, once that is back from compiled code; if it
    is then inside a callback, such as the one by which JAX hears of garbage collections, the
    exception is printed and forgotten. So a thread waits for the signal too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    ended = threading.Event()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(ours, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        theirs.close()
        watcher.join()
        ours.close()


def _watch(signals: socket.socket, ended: threading.Event) -> None:
    while received := signals.recv(1):
        if received[0] == signal.SIGINT and not ended.wait(PATIENCE):
            complain(": ".join(["stopped", *_hints[-1:]]))
            os._exit(STOPPED)
