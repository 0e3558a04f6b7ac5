"""Atomic file writes that never follow symbolic links; all files of lostwax are written here.

A file is written under a random name in its folder, opened exclusively, and renamed once it is on disk. The draft of a
killed process is recognised by its name and its free lock; the next write to the folder deletes it.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, final

from lostwax.fields import redacted, shown
from lostwax.provenance import fingerprint

if TYPE_CHECKING:
    from torch import Tensor

if sys.platform != "win32":
    import fcntl

DRAFT = re.compile(r"\.lostwax-[0-9a-f]{32}\.part")
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # not C:/
LOCK = f".lostwax-{32 * 'f'}.part"  # that of a killed process is swept up like its drafts
_locked: ContextVar[frozenset[Path]] = ContextVar("_locked", default=frozenset())  # folders, in this thread
MAX_NAME_BYTES = 255  # of a file name, in all common file systems
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # not on Windows
PRIVATE, PUBLIC = 0o600, 0o666  # PUBLIC is narrowed by the umask
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in "\t\n\r"}


def named(source: str, path: str | Path) -> Path:
    """The path, if it is a valid file name; error messages start with `source`."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{source}: expected a path, as text or pathlib.Path, got {shown(path)}.")
    name = redacted(ascii(str(path)))
    if URL.match(str(path)):
        raise ValueError(
            f"{source}: {name} is a URL, but only local files are read and written here. Use a local path."
        )
    name = name if len(name) <= 80 else f"{name[:76]}...'"
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ValueError(f"{source}: {name} holds half a character (a lone surrogate). Use another name.") from error
    if b"\0" in encoded:
        raise ValueError(f"{source}: {name} holds a NUL character, which is not allowed. Use another name.")
    longest = max(map(len, re.split(rb"[/\\]" if os.sep == "\\" else b"/", encoded)))
    if longest > MAX_NAME_BYTES:
        raise ValueError(
            f"{source}: {name} has a part of {longest} bytes, but the limit is {MAX_NAME_BYTES}. Use a shorter name."
        )
    return Path(path)


def escaped(text: str) -> str:
    r"""The text with control characters written as \x00; tabs and line ends stay."""
    return text.translate(_CONTROLS)


def as_utf8(text: str) -> bytes:
    r"""The text as UTF-8; half characters are written as \ud800."""
    return text.encode("utf-8", "backslashreplace")


def make_folder(source: str, path: Path) -> None:
    """Create the folder and its parents, if they do not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failed(error, f"{source}: the folder {path} could not be created ({why(error)}). {CURE}") from error


def write(path: Path, content: bytes | str, *, source: str, private: bool = False, new: bool = False) -> Path:
    """Write the file, replacing an existing one; with `new`, an existing one is a FileExistsError."""
    sweep(path.parent)
    with Draft(path, content, source=source, private=private) as draft:
        draft.publish(new=new)
    return path


def remove(source: str, path: Path) -> None:
    """Delete the file if it exists; for a link, only the link."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise failed(error, f"{source}: {path} could not be deleted ({why(error)}). Delete it manually.") from error


@final
class Draft:
    """A complete file under a temporary name, deleted on exit unless published; `private`: only the owner reads it."""

    def __init__(self, path: Path, content: bytes | str, *, source: str, private: bool = False) -> None:
        self.path, self.source = named(source, path), source
        if self.path.is_symlink():
            raise FileExistsError(
                f"{source}: {path} is a symbolic link, which lostwax does not follow. Delete it, or use the path of "
                "its target."
            )
        if self.path.exists() and not self.path.is_file():
            raise FileExistsError(f"{source}: {path} exists and is not a regular file. Use another name.")
        content = as_utf8(content) if isinstance(content, str) else content
        try:
            self._descriptor, self._draft = _begin(path.parent, PRIVATE if private else PUBLIC)
        except OSError as error:
            raise self._failed(error) from error
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)  # so that a crash cannot leave an empty file under the new name
        except BaseException as error:
            self._discard()
            if isinstance(error, OSError):
                raise self._failed(error) from error
            raise

    def publish(self, *, new: bool = False) -> None:
        """Rename the draft atomically; with `new`, an existing file is a FileExistsError."""
        try:
            if new:
                _link(self._draft, self.path)
            else:
                if sys.platform == "win32":
                    self._close()  # Windows cannot rename open files
                self._draft.replace(self.path)
        except FileExistsError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *_: object) -> None:
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
        message = (
            f"{self.source}: {self.path} could not be written ({why(error)}). An earlier file is unchanged. {CURE}"
        )
        return failed(error, message)


CURE = "Free some space, get write permission, or use another folder."


def failed(error: OSError, message: str) -> OSError:
    """The same error with another message; its errno stays."""
    changed = type(error)(message)
    changed.errno = error.errno
    return changed


@contextmanager
def locked(source: str, folder: Path) -> Iterator[None]:
    """Keep other processes and threads from writing to the folder; BlockingIOError if one does already.

    The folder is created, and deleted again if it stays empty. Without effect on Windows and on file systems without
    locks.
    """
    place = folder.absolute()
    if sys.platform == "win32" or place in _locked.get():
        yield
        return
    missing = [path for path in (place, *place.parents) if not path.exists()]
    make_folder(source, place)
    try:
        descriptor = _lock_file(place / LOCK)
    except BlockingIOError as error:
        why_not = "another process writes a report there"
        raise BlockingIOError(
            f"{source}: {folder} is in use: {why_not}. Wait for it, or use another folder."
        ) from error
    except OSError as error:
        raise failed(error, f"{source}: {folder} is not writable ({why(error)}). {CURE}") from error
    token = _locked.set(_locked.get() | {place})
    try:
        yield
    finally:
        _locked.reset(token)
        with suppress(OSError):
            (place / LOCK).unlink()
        os.close(descriptor)
        with suppress(OSError):  # not empty
            for path in missing:
                path.rmdir()


def _lock_file(path: Path) -> int:
    """Open and lock the file; BlockingIOError if another process has."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, PRIVATE)
        if not _lock(descriptor):
            os.close(descriptor)
            raise BlockingIOError(f"{path} is locked")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        os.close(descriptor)  # its process deleted it before it was locked here


def is_leftover(path: Path) -> bool:
    """Whether it looks like a leftover of a killed lostwax process; lostwax creates no links."""
    return DRAFT.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def sweep(folder: Path) -> list[Path]:
    """Delete leftovers of killed processes in a folder; returns those that could not be deleted."""
    remaining = []
    for path in folder.glob(".lostwax*"):
        if not is_leftover(path) or _in_use(path):
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError:
            remaining.append(path)
    return remaining


def check_writable(folder: Path) -> None:
    """Raise OSError unless a file can be created in the folder: permissions alone are not enough."""
    sweep(folder)
    descriptor, path = _begin(folder, PRIVATE)
    path.unlink()
    os.close(descriptor)


def _begin(folder: Path, mode: int) -> tuple[int, Path]:
    """Open and lock a new file with an unguessable name."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_FOLLOW | getattr(os, "O_BINARY", 0)
    while True:
        path = folder / f".lostwax-{secrets.token_hex(16)}.part"
        descriptor = os.open(path, flags, mode)
        if _lock(descriptor) and path.exists():
            return descriptor, path
        os.close(descriptor)  # another process deleted it before it was locked


def _lock(descriptor: int) -> bool:
    """Lock an open file; False if another process holds the lock. The kernel frees locks of killed processes."""
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks
    return True  # on Windows an open file cannot be deleted


def _in_use(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW)
    except OSError:
        return False  # deleted, or owned by someone else: deleting it will show
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def _link(draft: Path, path: Path) -> None:
    """Hard-link the draft to its name, which fails if the name is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists") from None
        draft.replace(path)


def why(error: OSError) -> str:
    """The system's message, without the error number."""
    return error.strerror or str(error)


def read_tensors(source: str, path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path, device=device)
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"{source}: {path} cannot be read as a safetensors file ({error}). Delete it or get a new copy."
        ) from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, source: str = "write_tensors") -> None:
    """Write tensors atomically as a safetensors file that only the owner may read."""
    content = as_bytes(tensors)
    make_folder(source, path.parent)
    write(path, content, source=source, private=True)


CHECKSUM = "checksum"  # the name of a tensor beside the others


def write_checked(path: Path, tensors: Mapping[str, Tensor], *, source: str) -> None:
    """The same, with a checksum that binds the tensors to the name of the file."""
    write_tensors(path, {**tensors, CHECKSUM: _checksum(path, tensors)}, source=source)


def read_checked(source: str, path: Path, device: str = "cpu", *, cure: str) -> dict[str, Tensor]:
    """The tensors that `write_checked` wrote; raises ValueError with the cure if they are others."""
    try:
        tensors = read_tensors(source, path, device)
    except ValueError as error:
        raise ValueError(f"{error} {cure}") from error
    stored = tensors.pop(CHECKSUM, None)
    if stored is None or stored.tolist() != _checksum(path, tensors).tolist():
        reason = "it has no checksum" if stored is None else "its checksum is wrong"
        raise ValueError(f"{source}: {path} is damaged ({reason}). {cure}")
    return tensors


def _checksum(path: Path, tensors: Mapping[str, Tensor]) -> Tensor:
    """(bytes,) a fingerprint of the tensors, their names and that of the file."""
    import torch

    names = sorted(tensors)
    text = "\n".join([path.name, *names]).encode()
    digest = fingerprint(torch.tensor(list(text)), *(tensors[name] for name in names))
    return torch.tensor(list(bytes.fromhex(digest)), dtype=torch.uint8)


def as_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file."""
    from safetensors.torch import save

    return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
