"""Tasks shared among processes that run one script, and not the calling program again."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from osiris_jax.worlds.gymnasium_episodes import Episodes, receive, send


@contextlib.contextmanager
def results(
    function: Callable[[Any], Episodes], tasks: Sequence[Any], processes: int
) -> Iterator[Iterator[tuple[int, Episodes]]]:
    """An iterator of (number of the task, its result), in the order in which they finish.

    Unlike `multiprocessing`, this needs no `if __name__ == "__main__"` in the calling script, and
    the processes import only what the function's module does. They end with the context, whatever
    ends it; Ctrl-C reaches only the caller.

    Args:
      function: one whose module, run as a script, receives tasks from its standard input and
        sends the result of each to its standard output, or its traceback as `failure`.
      tasks: what to call it with.
      processes: how many at once; 1 is the calling process.

    Raises:
      RuntimeError: a task failed, or a process died.
    """
    if min(processes, len(tasks)) <= 1:
        yield ((number, function(task)) for number, task in enumerate(tasks))
        return
    script = str(sys.modules[function.__module__].__file__)
    workers = [_start(script) for _ in range(min(processes, len(tasks)))]
    idle = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def call(task: Any) -> Episodes:
        worker = idle.get()
        try:
            return _ask(worker, task)
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(len(workers))
    try:
        numbers = {threads.submit(call, task): number for number, task in enumerate(tasks)}
        yield ((numbers[future], future.result()) for future in as_completed(numbers))
    finally:
        for worker in workers:
            worker.kill()
        threads.shutdown(cancel_futures=True)
        for worker in workers:
            with contextlib.suppress(OSError), worker:
                pass


def _start(script: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-P", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )


def _ask(worker: subprocess.Popen, task: Any) -> Episodes:
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        send(worker.stdin, task)
        result = receive(worker.stdout)
    except (EOFError, OSError):
        raise RuntimeError(f"a process ended by itself with code {worker.wait()}") from None
    if "failure" in result:
        raise RuntimeError(f"a task failed in its process:\n{result['failure']}")
    return result
