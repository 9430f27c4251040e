"""Bytes that are read by ranges: a local file now, an object of a store likewise."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Protocol

from pack_lib.errors import BadInput, Damaged, NotFound
from pack_lib.fsio import explain


class Blob(Protocol):
    """An immutable sequence of bytes of known length."""

    name: str
    """What to call it in messages."""
    size: int
    """Bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Exactly these bytes. Raises Damaged if it ends before, NotFound or StoreTrouble if it cannot be read."""
        ...

    def close(self) -> None: ...


def sha256_of(blob: Blob) -> str:
    """SHA-256, hex, of all its bytes."""
    digest = hashlib.sha256()
    for at in range(0, blob.size, 1 << 20):
        digest.update(blob.read(at, min(1 << 20, blob.size - at)))
    return digest.hexdigest()


class FileBlob:
    """A local file. Raises NotFound or BadInput if it cannot be opened."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.name = name or str(path)
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound(f"{self.name} does not exist") from None
        except OSError as error:
            raise BadInput(f"{self.name} cannot be read: {explain(error)}") from None
        self.size = os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        try:
            data = os.pread(self._descriptor, length, offset)
            while len(data) < length:
                more = os.pread(self._descriptor, length - len(data), offset + len(data))
                if not more:
                    raise Damaged(f"{self.name}: ends at byte {offset + len(data):,}; it was cut")
                data += more
        except OSError as error:
            raise BadInput(f"{self.name} cannot be read: {explain(error)}") from None
        return data

    def close(self) -> None:
        """May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> FileBlob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
