"""What a user sees is what it was; see `taking.py` for how to take it anew."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import IN_A_HURRY

from .plainly import differences, read
from .taking import FOLDER, SECTIONS, path_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """All sections as they are now, in processes of their own; what is hashed as users run it."""
    folder = tmp_path_factory.mktemp("surface")
    quickly = [section for section in SECTIONS if section != "worlds"]
    for sections, hurry in ((quickly, IN_A_HURRY), (["worlds"], {})):
        command = [sys.executable, "-m", "tests.surface.taking", "--into", str(folder), *sections]
        run = subprocess.run(
            command, cwd=ROOT, env=os.environ | hurry, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
    return folder


@pytest.mark.parametrize("section", SECTIONS)
def test_a_user_notices_nothing(section, taken):
    told = differences(read(path_of(section)), read(path_of(section, taken)))
    assert not told, "\n".join([f"{len(told)} differences", *told])


def test_every_file_is_compared():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SECTIONS)
