"""Q-networks and files: against plain matrix products, and whole or not at all."""

import io
import os
import pickle
import sys
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from osiris_jax.core import files
from osiris_jax.models.networks import QNetwork, load_network, save_network

WIDTHS = (5, 4, 3)
SCALE = np.array([0.5, 2.0], np.float32)


@pytest.fixture(scope="module")
def network():
    """Random weights, and biases that are not 0 as they are at first."""
    made = QNetwork.create(jax.random.key(0), WIDTHS[:-1], WIDTHS[-1], SCALE)
    rng = np.random.default_rng(0)
    shifted = jax.tree.map(lambda x: x + rng.normal(size=x.shape).astype(np.float32), made.params)
    return made.replace(params=shifted)


def arrays_of(path):
    with np.load(path) as archive:
        return dict(archive)


def test_the_forward_pass_is_matrix_products_and_relu(network):
    seen = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)
    value = seen.astype(np.float64) * SCALE
    layers = network.params["params"]
    hidden = []
    for number in range(3):
        layer = layers[f"Dense_{number}"]
        value = value @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"])
        if number < 2:
            hidden.append(value)
            value = np.where(value > 0, value, 0)
    assert all((part < 0).any() and (part > 0).any() for part in hidden)
    found = jax.jit(lambda net, x: net(x))(network, jnp.asarray(seen))
    assert found.shape == (6, network.num_actions)
    np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)
    shaped = network(jnp.asarray(seen.reshape(2, 3, 2)))
    np.testing.assert_allclose(shaped.reshape(6, 3), found, rtol=1e-5, atol=1e-5)


def test_a_network_comes_back_exactly(network, tmp_path):
    path = save_network(tmp_path / "new" / "folder" / "q.npz", network)
    assert path == tmp_path / "new" / "folder" / "q.npz"
    loaded = load_network(str(path))
    assert loaded.widths == WIDTHS
    chex.assert_trees_all_equal_dtypes(loaded, network)
    chex.assert_trees_all_equal(loaded, network)


# --------------------------------------------------------------------------- odd files


class Harmful:
    """Would leave a mark if it were unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (Path(self.mark),)


def archive_bytes(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def as_npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


CONTENTS = {
    "empty": b"",
    "text": b"this is no archive",
    "half an archive": archive_bytes(x=np.zeros(99))[:200],
    "head of a zip": b"PK\x03\x04" + b"\0" * 40,
    "pickle": pickle.dumps([1, 2, 3]),
    "one array": as_npy(np.zeros(3)),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_what_is_no_archive_is_refused_by_name(tmp_path, kind):
    path = tmp_path / "q.npz"
    path.write_bytes(CONTENTS[kind])
    for read in (files.read_arrays, load_network):
        with pytest.raises(ValueError, match=r"q\.npz: not a readable \.npz of plain arrays"):
            read(path)


def test_a_damaged_archive_is_read_or_refused_by_name(tmp_path):
    """Byte by byte; whatever zip and zlib raise, the user learns which file it was."""
    path = files.write_arrays(tmp_path / "q.npz", {"x": np.arange(50.0)})
    content, refused = path.read_bytes(), 0
    for place in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            files.read_arrays(path)
        except ValueError as error:
            assert "q.npz: not a readable" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 20


def test_objects_are_refused_and_not_unpickled(network, tmp_path):
    path = tmp_path / "q.npz"
    arrays = arrays_of(save_network(path, network))
    mark = tmp_path / "mark"
    arrays["scale"] = np.array([Harmful(mark)], dtype=object)
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=r"q\.npz: not a readable"):
        load_network(path)
    assert not mark.exists()
    with np.load(path, allow_pickle=True) as archive:
        archive["scale"]
    assert mark.exists()  # else the test could not fail


LAYER = "params/Dense_1"

MISSING = ["scale", "params/Dense_0/kernel", "params/Dense_2/kernel", f"{LAYER}/kernel"]

MISFITS = {
    "scale": ("scale", (3,)),
    "rows": (f"{LAYER}/kernel", (6, 4)),
    "columns": (f"{LAYER}/kernel", (5, 7)),
    "scale of no axes": ("scale", ()),
    "kernel of one axis": (f"{LAYER}/kernel", (5,)),
    "bias": (f"{LAYER}/bias", (9,)),
}

SPOILED = {
    **{f"no {name}": (name, None, "not a Q-network") for name in MISSING},
    **{f"no {name}": (name, None, "") for name in (LAYER, f"{LAYER}/bias")},
    **{f"misfit: {kind}": (*misfit, "") for kind, misfit in MISFITS.items()},
    "something else": ("params", None, "not a Q-network, 'params' is missing"),
}


@pytest.mark.parametrize(("field", "shape", "problem"), SPOILED.values(), ids=SPOILED)
def test_an_archive_of_no_network_is_refused_by_name(network, tmp_path, field, shape, problem):
    """Without what begins with the field's name, or with zeros of a wrong shape there."""
    path = tmp_path / "q.npz"
    arrays = arrays_of(save_network(path, network))
    arrays = {name: array for name, array in arrays.items() if not name.startswith(field)}
    if shape is not None:
        arrays[field] = np.zeros(shape, np.float32)
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=rf"q\.npz: {problem}"):
        load_network(path)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
        load_network(tmp_path / "nowhere.npz")


# ------------------------------------------------------------------------- whole or not


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path, error):
    path = files.write_text(tmp_path / "notes.txt", "old")

    def write(file):
        file.write(b"half of the n")
        file.flush()
        assert path.read_text() == "old"
        raise error

    with pytest.raises(error):
        files.write_whole(path, write)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_failure_leaves_no_file_where_there_was_none(tmp_path):
    with pytest.raises(TypeError):
        files.write_whole(tmp_path / "new" / "x", lambda file: file.write("not bytes"))
    assert os.listdir(tmp_path / "new") == []


def test_a_file_is_replaced_whole_with_the_usual_rights(tmp_path):
    path = tmp_path / "notes.txt"
    (tmp_path / "plain").touch()
    files.write_text(path, "a long old text")
    assert files.write_text(path, "näu") == path
    assert path.read_bytes() == "näu".encode()
    assert sorted(os.listdir(tmp_path)) == ["notes.txt", "plain"]
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_arrays_come_back_exactly(tmp_path):
    arrays = {
        "a": np.arange(3, dtype=np.int8),
        "b/c": np.array([[np.nan, -0.0]]),
        "d": np.float32(2),
    }
    found = files.read_arrays(files.write_arrays(tmp_path / "x.npz", arrays))
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert np.signbit(found["b/c"][0, 1])


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("OSIRIS_JAX_CACHE", str(tmp_path / "mine"))
    assert files.cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("OSIRIS_JAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert files.cache_folder() == tmp_path / "user" / "osiris-jax"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    places = {"linux": ".cache", "darwin": "Library/Caches", "win32": "local"}
    for platform, place in places.items():
        monkeypatch.setattr(sys, "platform", platform)
        assert files.cache_folder() == tmp_path / place / "osiris-jax"
