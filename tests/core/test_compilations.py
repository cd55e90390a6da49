"""Compilations that the command line keeps: where, how many, and whose word goes before."""

import os
import subprocess
import sys
import warnings

import pytest

from osiris_jax.core.compilations import FOLDER_VARIABLE, forget_oldest, keep_compilations

WITHOUT_JAX = {name: text for name, text in os.environ.items() if not name.startswith("JAX_")}
STUDY = ("study", "--world", "waiting-room", "--trials", "2", "--sizes", "4", "--estimators", "is")


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """An environment in which the user has said nothing about JAX's cache."""
    monkeypatch.setattr(os, "environ", WITHOUT_JAX | {"OSIRIS_JAX_CACHE": str(tmp_path / "cache")})
    monkeypatch.delitem(sys.modules, "jax")  # as in a process that has not imported it yet
    return os.environ


def run(environment, out):
    command = [sys.executable, "-m", "osiris_jax.cli", *STUDY, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(environment))
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_second_run_looks_where_the_first_wrote_and_bears_damage(environment, tmp_path):
    run(environment, tmp_path / "first")
    folder, pattern = tmp_path / "cache" / "compilations", "jit_simulated-*"
    (kept,) = folder.glob(pattern)
    kept.write_bytes(b"damaged")
    assert "persistent" not in run(environment, tmp_path / "second")
    assert list(folder.glob(pattern)) == [kept]


def test_a_folder_of_the_users_own_is_respected(environment, tmp_path):
    environment[FOLDER_VARIABLE] = "mine"
    keep_compilations()
    assert environment[FOLDER_VARIABLE] == "mine"
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_the_user_disabled_stays_empty(environment, tmp_path):
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    run(environment, tmp_path / "run")
    assert not list(tmp_path.glob("cache/compilations/*"))


def test_a_folder_that_cannot_be_used_is_left_alone(environment, tmp_path):
    (tmp_path / "cache").write_text("not a folder")
    keep_compilations()
    assert FOLDER_VARIABLE not in environment


def test_no_home_is_no_error(environment, monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("osiris_jax.core.compilations.cache_folder", nowhere)
    keep_compilations()
    assert FOLDER_VARIABLE not in environment


def test_a_full_disk_is_not_reported_for_every_compilation(environment):
    with warnings.catch_warnings():
        keep_compilations()
        warnings.warn("Error writing persistent compilation cache entry for 'jit_f'", stacklevel=1)
        with pytest.raises(UserWarning, match="another"):
            warnings.warn("another", stacklevel=1)


def test_what_was_not_used_for_longest_is_forgotten_first(tmp_path):
    for number, (written, used) in enumerate([(1, 9), (2, 2), (3, 0), (4, 4)]):
        path = tmp_path / f"{number}-cache"
        path.write_bytes(bytes(100))
        os.utime(path, (used, written))
    (tmp_path / "folder").mkdir()
    forget_oldest(tmp_path, 200)
    assert sorted(os.listdir(tmp_path)) == ["0-cache", "3-cache", "folder"]
    forget_oldest(tmp_path, 200)
    assert len(os.listdir(tmp_path)) == 3


def test_the_library_configures_nothing():
    code = (
        "import osiris_jax as oj, jax; [getattr(oj, name) for name in oj.__all__]\n"
        "import osiris_jax.cli, os; print(jax.config.jax_compilation_cache_dir)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=WITHOUT_JAX)
    assert done.stdout.split() == ["None"], done.stderr


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_the_switch_in_python(begun, given, tmp_path):
    """Compilations land in the folder, also where JAX has compiled something before."""
    first = "import jax; jax.numpy.ones(3) + 1\n" if begun else ""
    code = first + (
        "import osiris_jax as oj, os, sys\n"
        "os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'\n"
        "print(oj.keep_compilations(*sys.argv[1:]))\n"
        "import jax; jax.jit(lambda x: jax.numpy.sin(x) + 2)(1.0)\n"
    )
    wanted = tmp_path / ("mine" if given else "cache/compilations")
    alone = WITHOUT_JAX | {"OSIRIS_JAX_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code, *([str(wanted)] if given else [])]
    done = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert done.stdout.split() == [str(wanted)], done.stderr
    assert list(wanted.glob("jit__lambda*"))
