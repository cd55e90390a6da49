"""What a user sees is what it was; see `taking.py` for how to take it anew."""

import pytest

from .plainly import differences, read
from .taking import FOLDER, SECTIONS, path_of


@pytest.mark.parametrize("section", SECTIONS)
def test_a_user_notices_nothing(section):
    told = differences(read(path_of(section)), SECTIONS[section]())
    assert not told, "\n".join([f"{len(told)} differences", *told])


def test_every_file_is_compared():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SECTIONS)
