"""Reading a finished pack back from its file before it is sent. docs/decisions/0011."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

from pack_lib.errors import Damaged, PackError
from pack_lib.pack.blob import FileBlob, sha256_of
from pack_lib.pack.reader import PackReader
from pack_lib.pack.writer import BuiltPack
from pack_lib.progress import Progress, no_progress


def read_back(pack: BuiltPack, workers: int, progress: Progress = no_progress) -> None:
    """Check a finished pack's file: its SHA-256, that every frame decompresses to what was compressed (size and
    checksum), and that the manifest is whole, adds up and has the pack's hash.

    What the frames hold was checked before it was compressed. Memory: a few frames a worker.
    Raises PackError: a bug of ours, or a disk or memory that fails.
    """
    try:
        with closing(FileBlob(pack.path)) as blob, closing(PackReader(blob)) as reader:
            _check_bytes(blob, reader, pack, workers, progress)
            manifest = hashlib.sha256(b"\x00")
            for _ in reader.catalogue_batches(manifest.update):
                pass
            if manifest.hexdigest() != pack.hash:
                raise Damaged(f"its manifest hashes to {manifest.hexdigest()}")
    except Damaged as error:
        raise PackError(
            f"{pack.path} does not read back as it was written: {error}; nothing of it was sent. This is a bug, or "
            "the disk or the memory is failing: check both, then run again"
        ) from error


def _check_bytes(blob: FileBlob, reader: PackReader, pack: BuiltPack, workers: int, progress: Progress) -> None:
    under_way: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="read back") as threads:
        try:
            digest = threads.submit(sha256_of, blob)
            for at, frame in reader.frames():
                under_way.append(threads.submit(reader.check_frame, at, frame))
                while len(under_way) > 2 * workers:
                    under_way.popleft().result()
                    progress(at, pack.size)
            for future in under_way:
                future.result()
            if digest.result() != pack.sha256:
                raise Damaged(f"its SHA-256 is {digest.result()}, written was {pack.sha256}")
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
