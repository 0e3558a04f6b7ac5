"""Every file of ours is written here: it appears whole or not at all, and never through a symbolic link.

A file is drafted under a random name in the folder it is for, opened exclusively, and renamed when it is on the disk.
A draft whose process was killed is recognised by its name and by the lock that nobody holds any more; the next write to
the folder deletes it.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from torch import Tensor

if sys.platform != "win32":
    import fcntl

DRAFT = re.compile(r"\.lostwax-[0-9a-f]{32}\.part")
PROBE = re.compile(r"\.lostwax[a-z0-9_]{8}")  # an empty folder by which 0.1 tried whether it may write
LONGEST = 255  # bytes of a name, in every file system in common use
PRIVATE, PUBLIC = 0o600, 0o666  # PUBLIC is narrowed by the umask
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in "\t\n\r"}


def named(source: str, path: str | Path) -> Path:
    """The path, if files can have such a name; `source` is who asks."""
    shown = ascii(str(path))
    shown = shown if len(shown) <= 80 else f"{shown[:76]}...'"
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ValueError(f"{source}: {shown} holds half a character (a lone surrogate). Name another file.") from error
    if b"\0" in encoded:
        raise ValueError(f"{source}: {shown} holds a NUL character, which no file name may. Name another file.")
    longest = max(map(len, re.split(rb"[/\\]" if os.sep == "\\" else b"/", encoded)))
    if longest > LONGEST:
        raise ValueError(
            f"{source}: {shown} has a part of {longest} bytes, and a file name may have {LONGEST}. Name a shorter one."
        )
    return Path(path)


def escaped(text: str) -> str:
    r"""The text, its control characters written as \x00; tabs and line ends stay."""
    return text.translate(_CONTROLS)


def make_folder(source: str, path: Path) -> None:
    """Make the folder and those above it, where they are not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failed(error, f"{source}: the folder {path} could not be made ({why(error)}). {CURE}") from error


def write(path: Path, content: bytes | str, *, source: str, private: bool = False, new: bool = False) -> Path:
    """Write the file, replacing an earlier one; where it must be `new`, one that exists is a FileExistsError."""
    sweep(path.parent)
    with Draft(path, content, source=source, private=private) as draft:
        draft.publish(new=new)
    return path


def remove(source: str, path: Path) -> None:
    """Delete the file, where there is one; of a link the link alone."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise failed(error, f"{source}: {path} could not be deleted ({why(error)}). Delete it yourself.") from error


@final
class Draft:
    """A file that is whole, but not yet under its own name; left without `publish`, it is deleted.

    Only the owner may read it if it is `private`. Text is written as UTF-8, lone surrogates as escapes.
    """

    def __init__(self, path: Path, content: bytes | str, *, source: str, private: bool = False) -> None:
        self.path, self.source = named(source, path), source
        if self.path.is_symlink():
            raise FileExistsError(
                f"{source}: {path} is a symbolic link, and lostwax writes through none. Delete the link, or name the "
                "file it points to."
            )
        if self.path.exists() and not self.path.is_file():
            raise FileExistsError(f"{source}: {path} is there and is no regular file. Name another file.")
        content = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
        try:
            self._descriptor, self._draft = _begin(path.parent, PRIVATE if private else PUBLIC)
        except OSError as error:
            raise self._failed(error) from error
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)  # so that no crash leaves the new name on an empty file
        except BaseException as error:
            self._discard()
            if isinstance(error, OSError):
                raise self._failed(error) from error
            raise

    def publish(self, *, new: bool = False) -> None:
        """Give the file its name, at once; where it must be `new`, one that exists is a FileExistsError."""
        try:
            if new:
                _link(self._draft, self.path)
            else:
                if sys.platform == "win32":
                    self._close()  # an open file cannot be renamed there
                self._draft.replace(self.path)
        except FileExistsError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> Draft:
        """Itself, to be published."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Delete what was not published."""
        self._discard()

    def _discard(self) -> None:
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _failed(self, error: OSError) -> OSError:
        return failed(
            error,
            f"{self.source}: {self.path} could not be written ({why(error)}). What was there before stays. {CURE}",
        )


CURE = "Make room there or get the right to write, or name another folder."


def failed(error: OSError, words: str) -> OSError:
    """The same error in words of ours, its number kept."""
    told = type(error)(words)
    told.errno = error.errno
    return told


def is_leftover(path: Path) -> bool:
    """Whether a killed process of ours left this, by its name and kind."""
    if path.is_symlink():
        return False  # none of our files are links
    return bool((DRAFT.fullmatch(path.name) and path.is_file()) or (PROBE.fullmatch(path.name) and path.is_dir()))


def sweep(folder: Path) -> list[Path]:
    """Delete what killed processes of ours left in a folder; what could not be deleted is returned."""
    remaining = []
    for path in folder.glob(".lostwax*"):
        if not is_leftover(path) or _in_use(path):
            continue
        try:
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        except OSError:
            remaining.append(path)
    return remaining


def check_writable(folder: Path) -> None:
    """Raise OSError unless a file can be made in the folder: permissions alone do not tell."""
    sweep(folder)
    descriptor, path = _begin(folder, PRIVATE)
    path.unlink()
    os.close(descriptor)


def _begin(folder: Path, mode: int) -> tuple[int, Path]:
    """A new file that nobody else can have guessed, open and locked."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    while True:
        path = folder / f".lostwax-{secrets.token_hex(16)}.part"
        descriptor = os.open(path, flags, mode)
        if _lock(descriptor) and path.exists():
            return descriptor, path
        os.close(descriptor)  # it was swept up before it was locked


def _lock(descriptor: int) -> bool:
    """Whether nobody else holds the lock on an open file; the kernel frees those of the dead."""
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks
    return True  # on Windows an open file cannot be deleted


def _in_use(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return False  # gone, or somebody else's: deleting it tells
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def _link(draft: Path, path: Path) -> None:
    """A second name for the draft, where the first taker wins."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists") from None
        draft.replace(path)


def why(error: OSError) -> str:
    """What the system says of it, without the number."""
    return error.strerror or str(error)


# Weights on disk, without pickle.


def read_tensors(source: str, path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path, device=device)
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"{source}: {path} cannot be read as a safetensors file ({error}). Delete it or fetch it anew."
        ) from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, source: str = "write_tensors") -> None:
    """Write all or nothing, for the owner alone to read: a reader never meets half a file."""
    content = as_bytes(tensors)
    make_folder(source, path.parent)
    write(path, content, source=source, private=True)


def as_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file."""
    from safetensors.torch import save

    return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
