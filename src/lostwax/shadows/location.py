"""Where a shadow store is: a folder or a bucket, its files, and what may be said of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lostwax.fields import redacted
from lostwax.files import URL

if TYPE_CHECKING:
    from zarr.abc.store import Store as ZarrStore

MARKER = "zarr.json"  # in every folder of a store
PARTIAL = ".partial"  # suffix of a file that zarr has not finished writing


class Location(NamedTuple):
    """A folder or fsspec URL. Files appear there atomically: by a rename in a folder, by one upload in a bucket."""

    name: str  # as the user wrote it, without credentials
    files: Any  # fsspec's file system (untyped)
    root: str
    arrays: ZarrStore

    @classmethod
    def at(cls, where: str | Path) -> Location:
        """Open a folder or URL without creating anything."""
        from fsspec import url_to_fs
        from fsspec.implementations.local import LocalFileSystem
        from zarr.storage import FsspecStore, LocalStore

        url = str(where)
        name = redacted(url)
        if isinstance(where, Path) and URL.match(url):
            raise ValueError(f"Store: {name} is a URL in a pathlib.Path, which changes it. Pass it as text.")
        try:
            files, root = url_to_fs(url, use_listings_cache=False)
            local = isinstance(files, LocalFileSystem)
            arrays = LocalStore(root) if local else FsspecStore.from_url(url)
        except (ImportError, ValueError) as error:
            why = redacted(str(error))
            raise ValueError(f"Store: {name} is neither a folder nor a URL that fsspec can open ({why}).") from (
                error if name == url else None
            )
        return cls(name, files, root.rstrip("/"), arrays)

    def path(self, *parts: str) -> str:
        """The full path of a file."""
        return "/".join((self.root, *parts))

    def shown(self, *parts: str) -> str:
        """The path of a file for a message, without credentials."""
        return self.path(*parts) if self.is_local else "/".join((self.name.rstrip("/"), *parts))

    def why(self, error: Exception) -> str:
        """The text of an error, without credentials."""
        text = getattr(error, "strerror", None) or str(error)
        return redacted(text if self.is_local or not self.root else text.replace(self.root, self.name))

    def cause(self, error: Exception) -> Exception | None:
        """The error to show in a traceback; None if the URL has credentials, which it may quote."""
        return None if "***" in self.name else error

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return bool(self.files.protocol[0] == "file")

    def holds(self, *parts: str) -> bool:
        """Whether a complete file exists now."""
        return bool(self.files.exists(self.path(*parts)))

    def names(self, *parts: str) -> set[str]:
        """The names in a folder, without unfinished files; empty if the folder does not exist."""
        path = self.path(*parts)
        self.check_links(*parts)
        self.files.invalidate_cache()
        try:
            if self.files.isfile(path):
                raise ValueError(f"Store: {self.shown(*parts)} is a file. Name a folder or a URL.")
            entries = self.files.ls(path, detail=False)
        except FileNotFoundError:
            return set()
        except PermissionError as error:
            raise _unreadable(self.shown(*parts)) from self.cause(error)
        if self.is_local:
            with os.scandir(path) as found:
                for link in (entry.name for entry in found if entry.is_symlink()):
                    self.check_links(*parts, link)
        names = {str(path).rstrip("/").rpartition("/")[2] for path in entries}
        return {name for name in names if not name.endswith(PARTIAL)}

    def check_links(self, *parts: str) -> None:
        """Raise ValueError for a link inside a local store: it could lead anywhere. The store itself may be one."""
        path = Path(self.root)
        for name in "/".join(parts).split("/") if self.is_local and parts else ():
            path /= name
            if path.is_symlink():
                raise ValueError(
                    f"Store: {path} is a symbolic link, which lostwax does not follow. Nothing was changed. Replace it "
                    "by what it points to."
                )

    def make_folder(self, name: str = "") -> None:
        """Create the store or a folder in it; only those who may write to the store may read what is in the folder."""
        root, path = Path(self.root), Path(self.root, name)
        if not self.is_local or path.exists():
            return
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if name:
            path.mkdir(mode=0o700, exist_ok=True)
            mode = root.stat().st_mode
            writers = (0o070 if mode & 0o020 else 0) | (0o007 if mode & 0o002 else 0)
            if writers:
                path.chmod(path.stat().st_mode & 0o7777 | mode & writers)

    def sweep(self, *parts: str) -> None:
        """Delete partial files of killed writers, if the complete file exists; a live writer finds the same bytes."""
        folder = Path(self.path(*parts))
        if not self.is_local or not folder.is_dir():
            return
        complete = {path.stem for path in folder.iterdir() if path.suffix != PARTIAL}
        for path in folder.glob(f"*{PARTIAL}"):
            if path.name.split(".")[0] in complete:
                with suppress(OSError):  # owned by someone else, or a read-only folder
                    path.unlink()

    def declare(self, folder: str, attributes: Mapping[str, Any]) -> None:
        """Create the store ("") or a group in it, unless it exists or another writer is faster."""
        import zarr

        marker = f"{folder}/{MARKER}".lstrip("/")
        if not self.holds(marker):
            with self.writing(marker), suppress(zarr.errors.ContainsGroupError):
                self.make_folder(folder)
                zarr.create_group(self.arrays, path=folder, attributes=dict(attributes))

    def attributes(self, folder: str = "") -> dict[str, Any]:
        """What was declared."""
        import zarr

        attributes: dict[str, Any] = zarr.open_group(self.arrays, path=folder, mode="r").attrs.asdict()
        return attributes

    @contextmanager
    def reading(self, path: str, cure: str) -> Iterator[None]:
        """Turn any error about damaged bytes into one ValueError that names the file and what to delete (`cure`)."""
        self.check_links(path)
        try:
            file = Path(self.path(path))
            if self.is_local and file.exists() and not file.is_file():
                raise ValueError("not a regular file")  # a read of a pipe would block forever
            yield
        except PermissionError as error:
            raise _unreadable(self.shown(path)) from self.cause(error)
        except (ConnectionError, TimeoutError, MemoryError):  # the file may be intact
            raise
        except Exception as error:  # zarr and its codecs raise many types
            raise ValueError(
                f"Store: {self.shown(path)} is damaged ({self.why(error)}). Nothing was changed. Restore it from a "
                f"copy, or delete {self.shown(cure)} and run again: missing models are trained again."
            ) from self.cause(error)

    @contextmanager
    def writing(self, *parts: str) -> Iterator[None]:
        """Turn an OSError into one that names the file and the cure, unless another writer has written that file."""
        self.check_links(*parts)
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.holds(*parts):
                return
            raise OSError(
                f"Store: cannot write to {self.name}: {self.shown(*parts)} ({self.why(error)}). Files written before "
                "are kept. Free some space, get write permission, or use another store."
            ) from self.cause(error)


def _unreadable(path: str) -> PermissionError:
    return PermissionError(f"Store: no permission to read {path}. Get read permission, or use another store.")
