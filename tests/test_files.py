"""How a file is written: whole or not at all, private where it must be, never through a link."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from full_disk import no_file_over
from lostwax import files

LEFT = ".lostwax-" + 32 * "0" + ".part"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_what_is_written_is_there_and_nothing_else(tmp_path):
    files.write(tmp_path / "a", "één\n", source="test")
    assert (tmp_path / "a").read_bytes() == "één\n".encode()
    files.write(tmp_path / "a", b"\0\xff", source="test")
    assert (tmp_path / "a").read_bytes() == b"\0\xff"
    assert names(tmp_path) == ["a"]


@pytest.mark.usefixtures("umask")
def test_only_the_owner_reads_what_is_private_even_before_it_has_its_name(tmp_path):
    for private, mode in ((True, 0o600), (False, 0o644), (True, 0o600)):
        with files.Draft(tmp_path / "a", b"x", source="test", private=private) as draft:
            (drafted,) = [path for path in tmp_path.iterdir() if path.name != "a"]
            assert drafted.stat().st_mode & 0o777 == mode
            draft.publish()
        assert (tmp_path / "a").stat().st_mode & 0o777 == mode


def test_no_two_drafts_have_the_same_name(tmp_path):
    drafts = [files.Draft(tmp_path / "a", b"", source="test") for _ in range(50)]
    assert len(names(tmp_path)) == 50
    assert all(files.DRAFT.fullmatch(name) for name in names(tmp_path))
    for draft in drafts:
        with draft:
            pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "nowhere", "folder"])
def test_nothing_is_written_through_a_link(kind, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / kind)
    with pytest.raises(FileExistsError, match=r"test: .*link is a symbolic link, which lostwax does not follow"):
        files.write(tmp_path / "link", "ours", source="test")
    assert (tmp_path / "file").read_text() == "mine"
    assert names(tmp_path) == ["file", "folder", "link"]


def test_a_link_put_there_at_the_last_moment_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with files.Draft(tmp_path / "a", "ours", source="test") as draft:
        (tmp_path / "a").symlink_to(tmp_path / "mine")
        draft.publish()
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "a").read_text() == "ours"
    assert not (tmp_path / "a").is_symlink()


def test_a_folder_and_a_pipe_are_no_files(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(FileExistsError, match=rf"{name} exists and is not a regular file"):
            files.write(tmp_path / name, "ours", source="test")


def test_a_new_file_replaces_nothing(tmp_path):
    files.write(tmp_path / "a", "one", source="test", new=True)
    with pytest.raises(FileExistsError):
        files.write(tmp_path / "a", "two", source="test", new=True)
    assert (tmp_path / "a").read_text() == "one"
    assert names(tmp_path) == ["a"]


def test_a_full_disk_leaves_what_was_there(tmp_path):
    files.write(tmp_path / "a", "before", source="test")
    with (
        no_file_over(1_000),
        pytest.raises(OSError, match=r"test: .*/a could not be written .*Free some space") as caught,
    ):
        files.write(tmp_path / "a", b"x" * 2_000, source="test")
    assert caught.value.errno == errno.EFBIG
    assert "\n" not in str(caught.value)
    assert (tmp_path / "a").read_text() == "before"
    assert names(tmp_path) == ["a"]


def test_leftovers_of_the_dead_are_swept_up_and_drafts_of_the_living_are_not(tmp_path):
    (tmp_path / LEFT).write_text("half")
    (tmp_path / ".lostwaxmine").write_text("mine")
    with files.Draft(tmp_path / "a", "whole", source="test") as draft:
        files.write(tmp_path / "b", "other", source="test")
        assert not (tmp_path / LEFT).exists()
        draft.publish()
    assert names(tmp_path) == [".lostwaxmine", "a", "b"]


def test_what_only_looks_like_a_leftover_stays(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / LEFT).symlink_to(tmp_path / "mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / LEFT).mkdir()
    assert files.sweep(tmp_path) == files.sweep(tmp_path / "folder") == []
    assert names(tmp_path) == sorted([LEFT, "folder", "mine"])
    assert names(tmp_path / "folder") == [LEFT]


@pytest.mark.parametrize(
    ("name", "words"),
    [("a\0b", "NUL character"), ("a\ud800b", "lone surrogate"), (300 * "a", "300 bytes"), (150 * "é", "300 bytes")],
    ids=["nul", "surrogate", "long", "long in bytes"],
)
def test_names_that_no_file_can_have(name, words, tmp_path):
    with pytest.raises(ValueError, match=rf"^test: .*{words}.*Use a") as caught:
        files.write(tmp_path / name, "", source="test")
    assert len(str(caught.value)) < 250
    assert str(caught.value).isascii()


def test_the_longest_name_can_be_written(tmp_path):
    """The draft of a file has a short name, whatever the file's own."""
    files.write(tmp_path / (255 * "a"), "x", source="test")
    assert names(tmp_path) == [255 * "a"]


def test_text_that_is_not_unicode_is_escaped(tmp_path):
    files.write(tmp_path / "a", "a\ud800b", source="test")
    assert (tmp_path / "a").read_text() == "a\\ud800b"
    assert files.escaped("a\0b\x1b\tc\r\n") == "a\\x00b\\x1b\tc\r\n"


def test_a_folder_is_locked_for_others_and_not_for_its_owner(tmp_path):
    folder = tmp_path / "a" / "b"
    with ThreadPoolExecutor(1) as other, files.locked("test", folder), files.locked("test", folder):
        with pytest.raises(BlockingIOError, match=r"^test: .*b is in use: .*Wait for it, or use another folder"):
            other.submit(lambda: files.locked("test", folder).__enter__()).result()
        assert files.sweep(folder) == []
        assert names(folder) == [files.LOCK]
    assert names(tmp_path) == []  # it stayed empty
    folder.mkdir(parents=True)
    (folder / files.LOCK).write_text("")  # of a killed process
    with files.locked("test", folder):
        (folder / "kept").write_text("")
    assert names(folder) == ["kept"]


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / files.LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match=r"^test: .*folder is not writable"), files.locked("test", tmp_path / "folder"):
        pass
    assert (tmp_path / "mine").read_text() == "mine"
