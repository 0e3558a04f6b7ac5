"""A folder or any fsspec URL, as files and as zarr sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from zarr.abc.store import Store as ZarrStore

PARTIAL = ".partial"  # what zarr calls a file until it is whole


class Place(NamedTuple):
    """Where a store lies. A file appears there whole or not at all: renamed in a folder, one put in a bucket."""

    name: str  # as the user says it
    files: Any  # fsspec's file system (untyped)
    root: str
    arrays: ZarrStore

    @classmethod
    def at(cls, where: str | Path) -> Place:
        """The folder or URL; nothing is made there yet."""
        from fsspec import url_to_fs
        from fsspec.implementations.local import LocalFileSystem
        from zarr.storage import FsspecStore, LocalStore

        name = str(where)
        try:
            files, root = url_to_fs(name, use_listings_cache=False)
            local = isinstance(files, LocalFileSystem)
            arrays = LocalStore(root) if local else FsspecStore.from_url(name)
        except (ImportError, ValueError) as error:
            raise ValueError(
                f"Store: {name} is neither a folder nor a URL that fsspec can open here ({error})."
            ) from error
        return cls(name, files, root.rstrip("/"), arrays)

    def path(self, *parts: str) -> str:
        """As fsspec wants it, and as a person can find it."""
        return "/".join((self.root, *parts))

    def holds(self, *parts: str) -> bool:
        """Whether a file is there, whole, at this moment."""
        return bool(self.files.exists(self.path(*parts)))

    def names(self, *parts: str) -> set[str]:
        """What lies in a folder, files in the making left out; nothing in one that is not there."""
        path = self.path(*parts)
        self.files.invalidate_cache()
        try:
            if self.files.isfile(path):
                raise ValueError(f"Store: {path} is a file. Name a folder or a URL.")
            found = self.files.ls(path, detail=False)
        except FileNotFoundError:
            return set()
        except PermissionError as error:
            raise _unreadable(path) from error
        names = {str(path).rstrip("/").rpartition("/")[2] for path in found}
        return {name for name in names if not name.endswith(PARTIAL)}

    def sweep(self, *parts: str) -> None:
        """Remove what killed writers left half-written of files that are there by now.

        Another writer of the same file may be at work on it: it finds its half gone and the same bytes in place.
        """
        folder = Path(self.path(*parts))
        if self.files.protocol[0] != "file" or not folder.is_dir():
            return
        whole = {path.stem for path in folder.iterdir() if path.suffix != PARTIAL}
        for path in folder.glob(f"*{PARTIAL}"):
            if path.name.split(".")[0] in whole:
                with suppress(OSError):  # somebody else's, or a folder that may only be read
                    path.unlink()

    @contextmanager
    def reading(self, path: str, cure: str) -> Iterator[None]:
        """Whatever is raised over damaged bytes, said in one way: which file, and what to delete to be rid of it."""
        try:
            self._check_regular(path)
            yield
        except PermissionError as error:
            raise _unreadable(self.path(path)) from error
        except (ConnectionError, TimeoutError, MemoryError):  # the bytes may be sound
            raise
        except Exception as error:  # zarr and its codecs raise many kinds
            raise ValueError(
                f"Store: {self.path(path)} is damaged ({error}). Nothing was changed. Restore it from a copy, or "
                f"delete {self.path(cure)} and run again: what is missing is made anew."
            ) from error

    @contextmanager
    def writing(self, *parts: str) -> Iterator[None]:
        """What keeps a file from being written, and the cure.

        Where another writer was faster with the same bytes, and has swept up, that is none.
        """
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.holds(*parts):
                return
            raise OSError(
                f"Store: cannot write to {self.name}: {self.path(*parts)} ({error.strerror or error}). What was "
                "written before stays. Make room there or get the right to write, or name another store."
            ) from error

    def _check_regular(self, path: str) -> None:
        """A folder has no bytes, and a pipe would be waited for without end."""
        found = Path(self.path(path))
        if self.files.protocol[0] == "file" and found.exists() and not found.is_file():
            raise ValueError("it is no regular file")


def _unreadable(path: str) -> PermissionError:
    return PermissionError(f"Store: {path} may not be read. Get the right to, or name another store.")
