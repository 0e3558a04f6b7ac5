"""Stores cut short, bit-flipped, foreign, newer: an error that names the file and the cure, and nothing overwritten."""

import json
import os
import re
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lostwax.shadows import Local, Store
from lostwax.shadows.store import Location
from shadows.game import fill, game, tree


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store of two chunks, its files, and its models."""
    folder = tmp_path_factory.mktemp("store")
    models = read(folder)
    return folder, tree(folder), models


def read(folder):
    return torch.cat([release.flat() for _, release in fill(folder, 100)])


def meets(folder, file, damaged, models):
    """What happens over one damaged file: refused by name, or read all the same; never changed."""
    path = folder / file
    original = path.read_bytes()
    path.write_bytes(damaged)
    before = tree(folder)
    try:
        found = read(folder)
    except ValueError as error:
        said = str(error)
        assert said.startswith("Store: "), said
        assert str(folder) in said, said
        assert said.rstrip(".").endswith(("are trained again", "a new folder")), said
    else:
        assert torch.equal(found, models)
    finally:
        after = tree(folder)
        path.write_bytes(original)
    assert after == before, "the damaged store was changed"


FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(st.data())
def test_a_flipped_bit_is_found_or_harmless(whole, data):
    folder, files, models = whole
    file = data.draw(st.sampled_from(sorted(files)))
    place = data.draw(st.integers(0, len(files[file]) - 1))
    damaged = bytearray(files[file])
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    meets(folder, file, bytes(damaged), models)


@FUZZ
@given(st.data())
def test_a_file_cut_short_is_found(whole, data):
    folder, files, models = whole
    file = data.draw(st.sampled_from(sorted(files)))
    meets(folder, file, files[file][: data.draw(st.integers(0, len(files[file]) - 1))], models)


@pytest.mark.parametrize("part", ["weights", "rows"])
def test_the_cure_works(part, tmp_path):
    models = read(tmp_path)
    ((file,),) = [list(tmp_path.glob(f"*/{part}/1.0"))]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=rf"{part}/1\.0 is damaged.*delete (\S*{part}/1\.0) and run again"):
        read(tmp_path)
    file.unlink()
    assert torch.equal(read(tmp_path), models)


def test_a_lost_marker_is_written_again(tmp_path):
    models = read(tmp_path)
    held = tree(tmp_path)
    (tmp_path / "zarr.json").unlink()
    assert torch.equal(read(tmp_path), models)
    assert tree(tmp_path) == held


def edited(folder, change):
    sign = json.loads((folder / "zarr.json").read_text())
    change(sign["attributes"])
    (folder / "zarr.json").write_text(json.dumps(sign))


def test_a_lost_connection_is_no_damage(tmp_path):
    """Nobody is told to delete what could not be reached."""
    with pytest.raises(ConnectionError, match=r"^gone$"), Location.at(tmp_path).reading("chunk", "chunk"):
        raise ConnectionError("gone")


def test_a_newer_store(tmp_path):
    read(tmp_path)
    edited(tmp_path, lambda held: held.update(version=3))
    refused(tmp_path, "has version 3, but this lostwax reads version 2.*Upgrade lostwax")


def test_zarr_data_of_another_kind(tmp_path):
    read(tmp_path)
    edited(tmp_path, lambda held: held.clear())
    refused(tmp_path, "holds other zarr data")


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    refused(tmp_path, "is not a shadow store: it holds thesis.tex. Nothing was changed")


def test_a_file(tmp_path):
    (tmp_path / "file").write_text("years of work")
    with pytest.raises(ValueError, match="file is a file"):
        read(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "years of work"


def test_a_game_under_a_wrong_name(tmp_path):
    """Models of another game must not pass for those of this one."""
    read(tmp_path)
    (stored,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    fill(tmp_path, 100, lr=0.3)
    (other,) = [path for path in tmp_path.iterdir() if path.is_dir() and path != stored]
    stored.rename(tmp_path / "aside")
    other.rename(stored)
    refused(tmp_path, "zarr.json is damaged .its description does not match its name")


def test_a_chunk_that_vanishes_while_it_is_read(tmp_path):
    read(tmp_path)
    (stored,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    chunks = Store(tmp_path).simulate(game(), models=100, engine=Local())
    next(chunks)
    (stored / "weights" / "1.0").unlink()
    with pytest.raises(ValueError, match=r"weights/1.0 is damaged .it does not exist"):
        next(chunks)


def chunks_of(folder, part):
    """The files of the two chunks, by number."""
    return [next(folder.glob(f"*/{part}/{number}.0")) for number in (0, 1)]


def replaced_by_a_folder(file):
    file.unlink()
    file.mkdir()


def replaced_by_a_pipe(file):
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("change", [replaced_by_a_folder, replaced_by_a_pipe])
@pytest.mark.parametrize("part", ["weights", "rows"])
def test_a_chunk_that_is_no_file(part, change, tmp_path):
    """A folder used to be read as NaN weights, and a pipe was waited for without end."""
    read(tmp_path)
    change(chunks_of(tmp_path, part)[1])
    with pytest.raises(ValueError, match=rf"{part}/1\.0 is damaged \(not a regular file\)"):
        read(tmp_path)


@pytest.mark.parametrize("change", [replaced_by_a_folder, replaced_by_a_pipe])
def test_a_declaration_that_is_no_file(change, tmp_path):
    read(tmp_path)
    for file in sorted(tmp_path.rglob("zarr.json")):
        original = file.read_bytes()
        change(file)
        with pytest.raises(ValueError, match=rf"{file.relative_to(tmp_path)} is damaged \(not a regular file\)"):
            read(tmp_path)
        file.rmdir() if file.is_dir() else file.unlink()
        file.write_bytes(original)


@pytest.mark.parametrize("parts", [("weights",), ("rows",), ("weights", "rows")], ids=" and ".join)
def test_chunks_that_changed_places(parts, tmp_path):
    """Each is whole by its checksum, but not in its place; deleting what is named cures it, file by file."""
    models = read(tmp_path)
    for part in parts:
        one, other = chunks_of(tmp_path, part)
        one.rename(one.with_name("aside"))
        other.rename(one)
        one.with_name("aside").rename(other)
    for _ in range(2):  # one file of each chunk is named
        with pytest.raises(ValueError, match="it is not the chunk that was written here") as caught:
            read(tmp_path)
        Path(re.search(r"delete (\S+) and run again", str(caught.value))[1]).unlink()
    assert torch.equal(read(tmp_path), models)


def test_a_chunk_of_another_game_is_noticed(tmp_path):
    read(tmp_path)
    (ours,) = tmp_path.glob("*/weights/0.0")
    fill(tmp_path, 100, lr=0.3)
    (theirs,) = [path for path in tmp_path.glob("*/weights/0.0") if path != ours]
    ours.write_bytes(theirs.read_bytes())
    refused(tmp_path, r"weights/0\.0 is damaged .it is not the chunk that was written here")


@pytest.mark.parametrize("url", ["nosuch://bucket/shadows", "s4://bucket"])
def test_a_url_that_nobody_knows(url):
    with pytest.raises(ValueError, match=f"Store: {url} is neither a folder nor a URL that fsspec can open"):
        read(url)


def refused(folder, match):
    before = tree(folder)
    with pytest.raises(ValueError, match=match):
        read(folder)
    assert tree(folder) == before
