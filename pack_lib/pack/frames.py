"""Independent zstd frames (RFC 8878) and the seek table (zstd seekable format 0.1.0) that ends a pack."""

from __future__ import annotations

import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

import zstandard

from pack_lib.errors import BadInput, Damaged

LIBZSTD = ".".join(map(str, zstandard.ZSTD_VERSION))
"""Version of libzstd: with the level and the frame size it decides a frame's compressed bytes."""

MAX_FRAME = 8 << 20
"""Uncompressed bytes of a frame up to which it is decompressed at once; a larger one is streamed."""

_SKIPPABLE = 0x184D2A5E
_SEEKABLE = 0x8F92EAB1
_HEAD = struct.Struct("<II")
_ENTRY = struct.Struct("<III")
_FOOT = struct.Struct("<IBI")
_WITH_CHECKSUMS = 0x80


@dataclass(frozen=True, slots=True)
class Frame:
    """One zstd frame: compressed and uncompressed bytes, and the low 32 bits of the XXH64 of its content."""

    csize: int
    usize: int
    checksum: int


def frame_of(usize: int, compressed: bytes) -> Frame:
    """The entry of a frame made by this module: its checksum is its last four bytes (RFC 8878, 3.1.1)."""
    return Frame(len(compressed), usize, int.from_bytes(compressed[-4:], "little"))


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Compressors(threading.local):
    """One compressor a thread and level: a context is not safe to share."""

    def __init__(self) -> None:
        self._made: dict[int, zstandard.ZstdCompressor] = {}

    def get(self, level: int) -> zstandard.ZstdCompressor:
        if level not in self._made:
            self._made[level] = zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True)
        return self._made[level]


_compressors = _Compressors()


def compress_frame(data: bytes, level: int) -> bytes:
    """One whole frame with content size and checksum. The same bytes for the same libzstd, whatever the thread."""
    return _compressors.get(level).compress(data)


_executors: dict[int, ThreadPoolExecutor] = {}
_executors_lock = threading.Lock()


def _threads(workers: int) -> ThreadPoolExecutor:
    """So many threads for all pools of the process: a compressor has some 10 MB of tables, and cores are shared."""
    with _executors_lock:
        if workers not in _executors:
            _executors[workers] = ThreadPoolExecutor(workers, thread_name_prefix="frames")
        return _executors[workers]


def _after_fork() -> None:
    _executors.clear()  # threads do not follow into a forked process
    _executors_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_executors_lock.acquire, after_in_parent=_executors_lock.release)
    os.register_at_fork(after_in_child=_after_fork)

Note = TypeVar("Note")


class FramePool(Generic[Note]):
    """Compresses frames in threads and hands them on in the order they came, each with the caller's note.

    ``sink(note, data_size, compressed)`` is called in the caller's thread. At most ``2 * workers + 2`` frames are under
    way, which bounds memory. An error of a worker is raised at the next call.
    """

    def __init__(self, level: int, workers: int, sink: Callable[[Note, int, bytes], None]) -> None:
        check_level(level)
        self._level = level
        self._sink = sink
        self._limit = 2 * workers + 2
        self._under_way: deque[tuple[Note, int, Future[bytes]]] = deque()
        self._threads = _threads(workers)

    def push(self, note: Note, data: bytes) -> None:
        self._under_way.append((note, len(data), self._threads.submit(compress_frame, data, self._level)))
        while self._under_way and (len(self._under_way) > self._limit or self._under_way[0][2].done()):
            self._hand_on()

    def _hand_on(self) -> None:
        note, size, future = self._under_way.popleft()
        self._sink(note, size, future.result())

    def drain(self) -> None:
        """Wait until everything pushed has been handed on."""
        while self._under_way:
            self._hand_on()

    def __enter__(self) -> FramePool[Note]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, _, future in self._under_way:
            future.cancel()
        wait([future for _, _, future in self._under_way])


def check_level(level: int) -> None:
    """Raises BadInput for a level that zstd does not have."""
    if not 1 <= level <= 22:
        raise BadInput(f"level {level}: zstd has levels 1 to 22")


def check_workers(workers: int) -> None:
    if not 1 <= workers <= 256:
        raise BadInput(f"{workers} workers: give 1 to 256")


def seek_table_size(frames: int) -> int:
    """Bytes of the seek table of so many frames."""
    return _HEAD.size + frames * _ENTRY.size + _FOOT.size


def encode_seek_table(frames: Iterable[Frame]) -> bytes:
    """The skippable frame that lists all frames before it, in order."""
    entries = b"".join(_ENTRY.pack(frame.csize, frame.usize, frame.checksum) for frame in frames)
    size = len(entries) + _FOOT.size
    return _HEAD.pack(_SKIPPABLE, size) + entries + _FOOT.pack(len(entries) // _ENTRY.size, _WITH_CHECKSUMS, _SEEKABLE)


FOOTER_SIZE = _FOOT.size


def seek_table_length(footer: bytes, file_size: int, where: str) -> int | None:
    """Bytes of the whole seek table, from the file's last nine; None if they are no seek table's end."""
    if len(footer) != _FOOT.size:
        return None
    count, descriptor, magic = _FOOT.unpack(footer)
    if magic != _SEEKABLE:
        return None
    length = seek_table_size(count)
    if descriptor != _WITH_CHECKSUMS or length > file_size:
        raise Damaged(f"{where}: its seek table is damaged ({count} frames, descriptor {descriptor:#x})")
    return length


def parse_seek_table(data: bytes, file_size: int, where: str) -> list[Frame]:
    """The frames of a whole seek table. Raises Damaged if it does not describe a file of that size exactly."""
    magic, size = _HEAD.unpack_from(data)
    if magic != _SKIPPABLE or size != len(data) - _HEAD.size:
        raise Damaged(f"{where}: its seek table is damaged (header {magic:#x}, {size} bytes)")
    frames = [Frame(*entry) for entry in _ENTRY.iter_unpack(data[_HEAD.size : -_FOOT.size])]
    if sum(frame.csize for frame in frames) + len(data) != file_size:
        raise Damaged(f"{where}: its frames and seek table do not add up to {file_size:,} bytes; it was cut or grown")
    return frames


def decompress_frame(data: bytes, frame: Frame, where: str) -> bytes:
    """The content of one frame, checked for its size and checksum. Raises Damaged; allocates no more than it states."""
    try:
        stated = zstandard.frame_content_size(data)
        if stated != frame.usize:
            raise Damaged(f"{where}: a frame states {stated} bytes where the seek table has {frame.usize}")
        if int.from_bytes(data[-4:], "little") != frame.checksum:
            raise Damaged(f"{where}: a frame's checksum is not the seek table's")
        content = _decompressors.get().decompress(data, max_output_size=frame.usize, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Damaged(f"{where}: a frame does not decompress ({error})") from None
    if len(content) != frame.usize:
        raise Damaged(f"{where}: a frame gave {len(content)} bytes instead of {frame.usize}")
    return content


class _Decompressors(threading.local):
    def __init__(self) -> None:
        self._made: zstandard.ZstdDecompressor | None = None

    def get(self) -> zstandard.ZstdDecompressor:
        if self._made is None:
            self._made = zstandard.ZstdDecompressor()
        return self._made


_decompressors = _Decompressors()
