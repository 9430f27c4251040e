"""Files that are whole or absent: temporary name, fsync, rename; free space; one lock a shard.

Every write of this project to a disk goes through here, so a test can stop the process between any two of them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from pack_lib.errors import Busy, StoreTrouble

TEMP_PREFIX = ".tmp-"
"""A file of this prefix is unfinished and means nothing; any later run may delete it."""


def explain(error: OSError) -> str:
    """The system's words for an error, without the path (the caller names the place)."""
    return error.strerror or str(error)


@contextlib.contextmanager
def writing(where: Path) -> Iterator[None]:
    """Turn what the system refuses (space, permission, media) into one StoreTrouble that names the place."""
    try:
        yield
    except OSError as error:
        place = error.filename if isinstance(error.filename, str) else where
        hint = {
            errno.ENOSPC: "free some space or choose another folder, then run again",
            errno.EDQUOT: "raise the quota or choose another folder, then run again",
            errno.EACCES: "give write permission or choose another folder",
            errno.EPERM: "give write permission or choose another folder",
            errno.EROFS: "it is mounted read-only: choose another folder",
            errno.EXDEV: "a folder in it lies on another file system: put the whole store on one",
            errno.ENOTDIR: "a part of the path is a file: choose another folder",
            errno.EEXIST: "a file stands where a folder is needed: choose another folder",
        }.get(error.errno or 0, "mend it, then run again")
        raise StoreTrouble(f"cannot write {place}: {explain(error)}; {hint}") from error


class HashingFile:
    """A new file under a temporary name that counts and digests what is written, and is renamed when complete.

    Leaving the ``with`` block by an exception, or without ``commit``, removes it. Raises StoreTrouble.
    """

    def __init__(self, folder: Path, *, digest: bool = True) -> None:
        self._folder = folder
        self.size = 0
        self._sha256 = hashlib.sha256() if digest else None
        with writing(folder):
            make_folder(folder)
            with _folder_lock(folder):
                descriptor, name = tempfile.mkstemp(prefix=TEMP_PREFIX, dir=folder)
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # held while it is being written: `remove_temporaries`
        self.path = Path(name)
        self.file = os.fdopen(descriptor, "w+b", buffering=1 << 20)

    @property
    def sha256(self) -> str:
        if self._sha256 is None:
            raise ValueError("this file takes no digest")
        return self._sha256.hexdigest()

    def write(self, data: bytes) -> None:
        with writing(self._folder):
            self.file.write(data)
        self.size += len(data)
        if self._sha256 is not None:
            self._sha256.update(data)

    def flush(self) -> None:
        """Let other descriptors of the file see what was written; it need not be durable."""
        with writing(self._folder):
            self.file.flush()

    def sync(self) -> None:
        self.flush()
        with writing(self._folder):
            os.fchmod(self.file.fileno(), 0o644)
            os.fsync(self.file.fileno())

    def commit(self, name: str) -> Path:
        """Make it durable under its final name, replacing what stood there. Returns the path."""
        self.sync()
        target = self._folder / name
        with writing(target):
            self.path.replace(target)
            sync_folder(self._folder)
        self.path = target
        self.file.close()
        return target

    def link(self, target: Path, lock: Path) -> bool:
        """Make it durable as ``target`` unless that exists; False (and nothing done) if it does. Atomic.

        ``lock`` serves file systems without hard links (FAT, some network mounts), where it takes two steps.
        """
        self.sync()
        with writing(target):
            make_folder(target.parent)
            try:
                os.link(self.path, target)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
                    raise
                with locked(lock, f"{target.parent} is being written", wait=True):
                    if target.exists():
                        return False
                    self.path.replace(target)
            sync_folder(target.parent)
        return True

    def __enter__(self) -> HashingFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # closing flushes: on a full disk that fails again, and is reported already
            self.file.close()
        if self.path.name.startswith(TEMP_PREFIX):
            self.path.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, each of them durable: a file in it is no more so than the way to it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename or a link in this folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """The file holds ``data`` or what it held before, whatever happens. Raises StoreTrouble."""
    with HashingFile(path.parent, digest=False) as file:
        file.write(data)
        file.commit(path.name)


def write_json(path: Path, value: object) -> None:
    """A small descriptor for our own later use (indented; not canonical, never hashed)."""
    write_atomically(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """What ``write_json`` wrote there; None if there is no such file or it is none of ours."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def require_space(folder: Path, needed: int, purpose: str) -> None:
    """Raises StoreTrouble, with the numbers, if the file system of ``folder`` has fewer bytes free than needed."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    if free < needed:
        raise StoreTrouble(
            f"{folder}: {purpose} needs {needed:,} bytes and {free:,} are free; "
            "free some space or choose another folder, then run again"
        )


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Between making a temporary file and locking it, nobody may take it for a dead process's."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_temporaries(folder: Path) -> None:
    """Delete what killed processes left half-written in this folder, and nothing that a living one still writes."""
    if not folder.is_dir():
        return
    with writing(folder), _folder_lock(folder):
        for path in folder.glob(TEMP_PREFIX + "*"):
            with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


@contextlib.contextmanager
def locked(path: Path, holder: str, *, wait: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` (created if missing; the kernel frees it when the process dies).

    Raises Busy, saying ``holder``, if another process has it and ``wait`` is false.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Busy(f"{holder} (lock {path}); wait for it to end, then run again") from None
        yield
    finally:
        os.close(descriptor)
