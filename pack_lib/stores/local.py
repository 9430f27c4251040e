"""A store in a local folder: an object is a file, made under a temporary name and linked into place when durable."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from pack_lib.errors import Damaged, NotFound, StoreTrouble
from pack_lib.fsio import HashingFile, explain, locked, remove_temporaries, sync_folder, write_atomically, writing
from pack_lib.progress import Progress, no_progress
from pack_lib.stores.base import Put, check_key, check_prefix, is_key

_BLOCK = 1 << 20
_TEMPORARY = ".tmp"
_LOCK = ".lock"


class LocalStore:
    """See the module. Names that begin with a dot in its folder are its own: the lock, the unfinished files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.location = str(folder)
        self._swept = False

    def _path(self, key: str) -> Path:
        return self.folder / check_key(key)

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[Path]:
        try:
            yield self._path(key)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise NotFound(f"{self.location}/{key} does not exist") from None
        except OSError as error:
            raise StoreTrouble(f"{self.location}/{key} cannot be read: {explain(error)}") from error

    def get(self, key: str, limit: int = 1 << 30) -> bytes:
        with self._reading(key) as path, path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise Damaged(f"{path} has {size:,} bytes, more than the {limit:,} it may have")
            return file.read()

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        with self._reading(key) as path, path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if offset < 0 or length < 0 or offset + length > size:
                raise Damaged(f"{path}: ends at byte {size:,}; it was cut")
            file.seek(offset)
            data = file.read(length)
        if len(data) != length:
            raise Damaged(f"{path}: ends at byte {offset + len(data):,}; it was cut")
        return data

    def _sweep(self) -> None:
        """Once a process: remove what killed ones left half-written. What a living one writes is locked and stays."""
        if not self._swept:
            remove_temporaries(self.folder / _TEMPORARY)
            remove_temporaries(self.folder)
            self._swept = True

    def put_if_absent(self, key: str, body: Path | bytes, progress: Progress = no_progress) -> Put:
        path = self._path(key)
        self._sweep()
        if path.is_dir():
            raise StoreTrouble(f"{path} is a folder where an object should be; move it away, then run again")
        if path.exists():
            return Put(created=False, sent=0)
        with HashingFile(self.folder / _TEMPORARY, digest=False) as file:
            if isinstance(body, bytes):
                file.write(body)
            else:
                total = body.stat().st_size
                with body.open("rb") as source:
                    while file.size <= total and (block := source.read(_BLOCK)):
                        file.write(block)
                        progress(file.size, total)
                if file.size != total:
                    raise StoreTrouble(f"{body} changed while it was copied; run again")
            created = file.link(path, self.folder / _LOCK)
        return Put(created, file.size)

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        try:
            body = self.get(key)
        except NotFound:
            return None
        return body, hashlib.sha256(body).hexdigest()

    def replace_if(self, key: str, body: bytes, version: str | None) -> bool:
        path = self._path(key)
        self._sweep()
        with locked(self.folder / _LOCK, f"store {self.location} is being updated", wait=True):
            present = self.get_versioned(key)
            if (present[1] if present else None) != version:
                return False
            write_atomically(path, body)
        return True

    def object_size(self, key: str) -> int | None:
        try:
            stat = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreTrouble(f"{self.location}/{key} cannot be read: {explain(error)}") from error
        return stat.st_size if self._path(key).is_file() else None

    def object_sha256(self, key: str) -> str | None:
        with self._reading(key) as path, path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def list(self, prefix: str) -> Iterator[str]:
        folder = self.folder / check_prefix(prefix).rpartition("/")[0]

        def refuse(error: OSError) -> None:
            if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise StoreTrouble(f"{error.filename} cannot be listed: {explain(error)}") from error

        found: list[str] = []
        for parent, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
            # lost+found belongs to the file system that is mounted here.
            folders[:] = [name for name in folders if not name.startswith(".") and name != "lost+found"]
            base = Path(parent).relative_to(self.folder)
            found += [(base / name).as_posix() for name in files if not name.startswith(".")]
        # A stranger's file whose name is no key is none of the store's objects.
        yield from sorted(key for key in found if key.startswith(prefix) and is_key(key))

    def delete(self, key: str) -> None:
        path = self._path(key)
        with writing(path):
            if path.is_file():
                path.unlink(missing_ok=True)
                sync_folder(path.parent)
