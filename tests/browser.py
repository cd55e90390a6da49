"""Debian's chromium without a display: pictures of a page, its DOM, and its console."""

import os
import shutil
import subprocess
import tempfile

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr"),
)


def need_chromium():
    """Skips where no chromium is installed; but where CI is set, that is a failure."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed; .ci/run installs it")
        pytest.skip("chromium is not installed: apt-get install chromium")


def visit(page, *flags):
    """What chromium prints on standard output, and what the page's console says, line by line."""
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
        run = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stderr
    return run.stdout, [line for line in run.stderr.splitlines() if "CONSOLE" in line]


def screenshot(page, path, width, height):
    """Takes a picture of the page at this width; returns the console's lines."""
    flags = (f"--window-size={width},{height}", f"--screenshot={path}")
    return visit(page, *flags)[1]
