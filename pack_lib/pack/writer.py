"""The pack writer: table parts and frames of bodies go in, capped packs come out, one finished file at a time.

A pack's frames wait in spools (catalogue, content) or where they were staged, because the manifest stands first and is
known last.
Whether a frame still fits is decided with the exact size of the finished file, so a pack fills to within one frame
(one part, where it ends in a table) of the cap. docs/format.md, "Packs".
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from pack_lib.errors import CapTooSmall, PackError
from pack_lib.fsio import HashingFile
from pack_lib.pack.format import MANIFEST, PackHeader, Parameters, TablePart
from pack_lib.pack.frames import (
    Frame,
    compress_frame,
    decompress_frame,
    encode_seek_table,
    frame_of,
    seek_table_size,
)
from pack_lib.pack.layout3 import StagedUnit
from pack_lib.pack.tar import BLOCK, END, header, padding
from pack_lib.tables import StagedPart

Entry = tuple[str, int, int]
"""(leaf hash, offset of the body in its frame's content, size of the body in bytes)."""

_COPY = 1 << 20


@dataclass(frozen=True, slots=True)
class BuiltPack:
    """A finished pack in a folder, named ``<pack hash>.tar.zst``."""

    hash: str
    path: Path
    size: int
    sha256: str
    header: PackHeader

    @property
    def first_line(self) -> bytes:
        """The sidecar's bytes."""
        return self.header.encode()


@dataclass(slots=True)
class _Sizes:
    """What a pack holds so far, as far as the size of the finished file depends on it."""

    catalogue: int = 0
    catalogue_csize: int = 0
    content: int = 0
    content_csize: int = 0
    frames: int = 0


class PackSetWriter:
    """Writes the packs of one set in order. ``on_pack`` is called with each as it is finished.

    Call ``add_part`` for every table part in order, then ``add_bodies`` for every frame of bodies in order, then
    ``finish``. After an error it is unusable; leaving the ``with`` block removes its unfinished files.
    """

    def __init__(
        self, folder: Path, header: PackHeader, parameters: Parameters, on_pack: Callable[[BuiltPack], None]
    ) -> None:
        """``header`` gives what all packs of the set share; its number, counts and tables are filled in."""
        self._folder = folder
        self._shared = replace(header, layout=parameters.layout)
        self._shared_size = len(self._shared.encode())
        self._parameters = parameters
        self._on_pack = on_pack
        self._end = compress_frame(END, parameters.level)
        self._paddings: dict[int, bytes] = {}
        self._number = 0
        self._broken = False
        self._files = ExitStack()
        self._begin()

    def __enter__(self) -> PackSetWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self._files.close()

    def _begin(self) -> None:
        self._number += 1
        self._header = replace(self._shared, number=self._number, documents=0, chunks=0, body_bytes=0, tables=())
        self._sizes = _Sizes()
        self._catalogue_frames: list[Frame] = []
        self._content_frames: list[Frame] = []
        self._extents: list[tuple[Path | None, int, int]] = []
        self._catalogue = self._files.enter_context(HashingFile(self._folder, digest=False))
        self._content = self._files.enter_context(HashingFile(self._folder, digest=False))

    @property
    def _empty(self) -> bool:
        return not self._content_frames

    def _padding(self, manifest_size: int) -> bytes:
        zeros = padding(manifest_size)
        if not zeros:
            return b""
        if len(zeros) not in self._paddings:
            self._paddings[len(zeros)] = compress_frame(zeros, self._parameters.level)
        return self._paddings[len(zeros)]

    def _first_frame(self, first_line: bytes, manifest_size: int) -> tuple[bytes, bytes]:
        content = header(MANIFEST, manifest_size) + first_line
        return content, compress_frame(content, self._parameters.level)

    def _file_size(self, pack: PackHeader, sizes: _Sizes) -> int:
        """Bytes of the finished file, exactly."""
        line = pack.encode()
        manifest_size = len(line) + sizes.catalogue
        pad = self._padding(manifest_size)
        frames = sizes.frames + (3 if pad else 2)
        parts = len(self._first_frame(line, manifest_size)[1]) + len(pad) + len(self._end)
        return parts + sizes.catalogue_csize + sizes.content_csize + seek_table_size(frames)

    def _fits(self, pack: PackHeader, sizes: _Sizes) -> bool:
        cap = self._parameters.cap
        if cap is None:
            return True
        # Far below the cap a bound does (a frame is at most 1/256 and a few bytes longer than its content), and the
        # first line need not be built and compressed for every frame.
        line = self._shared_size + 256 + 256 * len(pack.tables)
        bound = line + line // 256 + 1024 + sizes.catalogue_csize + sizes.content_csize
        if bound + seek_table_size(sizes.frames + 3) <= cap:
            return True
        return self._file_size(pack, sizes) <= cap

    def _refuse(self, what: str, pack: PackHeader, sizes: _Sizes) -> PackError:
        needed = self._file_size(pack, sizes)
        enough = (needed // 1024 + 2) * 1024  # its number in the set may make the pack a few bytes longer
        return CapTooSmall(
            f"cap of {self._parameters.cap:,} bytes is too small: a pack of {what} alone takes {needed:,} bytes; "
            f"give --cap {enough} or more"
        )

    def _check_usable(self) -> None:
        if self._broken:
            raise PackError("the pack writer was used after an error")
        self._broken = True  # until the call that asks has ended well

    def add_part(self, part: StagedPart, staged: Path) -> None:
        """One table part, from its staged frames. It opens the next pack if this one has no room for it.

        Raises CapTooSmall if no pack has.
        """
        self._check_usable()
        while True:
            offset = self._sizes.content + BLOCK
            entry = TablePart(part.member, part.rows, part.size, part.sha256, offset)
            pack = replace(self._header, tables=(*self._header.tables, entry))
            sizes = replace(
                self._sizes,
                content=self._sizes.content + sum(frame.usize for frame in part.frames),
                content_csize=self._sizes.content_csize + part.csize,
                frames=self._sizes.frames + len(part.frames),
            )
            if self._fits(pack, sizes):
                break
            if self._empty:
                raise self._refuse(part.member, pack, sizes)
            self._close()
        first, rest = part.frames[0].csize, part.csize - part.frames[0].csize
        self._extents += ((staged, part.first_at, first), (staged, part.rows_at, rest))
        self._content_frames += part.frames
        self._header, self._sizes = pack, sizes
        self._broken = False

    def add_bodies(self, entries: list[Entry], usize: int, compressed: bytes) -> None:
        """One frame of bodies (``usize`` bytes of tar) with what it holds, in order.

        Raises CapTooSmall if it fits no pack.
        """
        self._check_usable()
        level = self._parameters.level
        size = sum(entry[2] for entry in entries)
        while True:
            base = self._sizes.content
            lines = "".join([f'["{name}",{base + at},{length}]\n' for name, at, length in entries]).encode()
            catalogue = compress_frame(lines, level)
            pack = replace(
                self._header, chunks=self._header.chunks + len(entries), body_bytes=self._header.body_bytes + size
            )
            sizes = _Sizes(
                self._sizes.catalogue + len(lines),
                self._sizes.catalogue_csize + len(catalogue),
                base + usize,
                self._sizes.content_csize + len(compressed),
                self._sizes.frames + 2,
            )
            if self._fits(pack, sizes):
                break
            if self._empty:
                raise self._refuse(f"the body {entries[0][0]} of {entries[0][2]:,} bytes", pack, sizes)
            self._close()
        self._catalogue.write(catalogue)
        self._catalogue_frames.append(frame_of(len(lines), catalogue))
        self._extents.append((None, self._content.size, len(compressed)))
        self._content.write(compressed)
        self._content_frames.append(frame_of(usize, compressed))
        self._header, self._sizes = pack, sizes
        self._broken = False

    def add_unit(self, unit: StagedUnit, staged: Path) -> None:
        """One staged unit of layout 3. Raises CapTooSmall if it fits no pack."""
        self._check_usable()
        while True:
            held = self._header
            pack = replace(
                held,
                documents=held.documents + unit.documents,
                chunks=held.chunks + unit.chunks,
                body_bytes=held.body_bytes + unit.body_bytes,
            )
            sizes = _Sizes(
                self._sizes.catalogue + unit.catalogue.usize,
                self._sizes.catalogue_csize + unit.catalogue.csize,
                self._sizes.content + sum(frame.usize for frame in unit.frames),
                self._sizes.content_csize + sum(frame.csize for frame in unit.frames),
                self._sizes.frames + 1 + len(unit.frames),
            )
            if self._fits(pack, sizes):
                break
            if self._empty:
                raise self._refuse(f"{unit.what} of {unit.body_bytes:,} bytes", pack, sizes)
            self._close()
        with staged.open("rb") as file:
            for block in _blocks(file.fileno(), unit.catalogue_at, unit.catalogue.csize):
                self._catalogue.write(block)
        self._catalogue_frames.append(unit.catalogue)
        self._extents += [(staged, at, length) for at, length in unit.extents]
        self._content_frames += unit.frames
        self._header, self._sizes = pack, sizes
        self._broken = False

    def finish(self) -> None:
        """Close the last pack. A set has at least one, if only of the tables' header lines."""
        self._check_usable()
        self._close(last=True)

    def _close(self, last: bool = False) -> None:
        line = self._header.encode()
        manifest_size = len(line) + self._sizes.catalogue
        first_content, first = self._first_frame(line, manifest_size)
        frames = [frame_of(len(first_content), first), *self._catalogue_frames]
        pad = self._padding(manifest_size)
        if pad:
            frames.append(frame_of(len(padding(manifest_size)), pad))
        frames += self._content_frames
        frames.append(frame_of(len(END), self._end))
        with HashingFile(self._folder) as file:
            file.write(first)
            manifest = hashlib.sha256(b"\x00" + line)
            for block in self._spooled_catalogue():
                file.write(block)
            for content in self._catalogue_contents():
                manifest.update(content)
            if pad:
                file.write(pad)
            for block in self._content_blocks():
                file.write(block)
            file.write(self._end)
            file.write(encode_seek_table(frames))
            if file.size != self._file_size(self._header, self._sizes):
                raise PackError("a pack is not of the size it was counted to; this is a bug")
            name = manifest.hexdigest()
            path = file.commit(f"{name}.tar.zst")
        built = BuiltPack(name, path, file.size, file.sha256, self._header)
        self._files.close()
        self._on_pack(built)
        if not last:
            self._begin()

    def _content_blocks(self) -> Iterator[bytes]:
        """What stands after the manifest, from where it waits: staged files, or this writer's own spool (None)."""
        self._content.flush()
        with ExitStack() as opened:
            files: dict[Path | None, int] = {None: self._content.file.fileno()}
            for path, at, length in self._extents:
                if path is not None and path not in files:
                    files[path] = opened.enter_context(path.open("rb")).fileno()
                yield from _blocks(files[path], at, length)

    def _spooled_catalogue(self) -> Iterator[bytes]:
        self._catalogue.flush()
        return _blocks(self._catalogue.file.fileno(), 0, self._catalogue.size)

    def _catalogue_contents(self) -> Iterator[bytes]:
        """The catalogue again from its compressed frames: the pack hash is taken of what a reader will get."""
        at = 0
        for frame in self._catalogue_frames:
            data = os.pread(self._catalogue.file.fileno(), frame.csize, at)
            at += frame.csize
            yield decompress_frame(data, frame, str(self._folder))


def _blocks(descriptor: int, at: int, length: int) -> Iterator[bytes]:
    end = at + length
    while at < end:
        block = os.pread(descriptor, min(_COPY, end - at), at)
        if not block:
            raise PackError("a spool file of the pack writer was cut by somebody else")
        at += len(block)
        yield block
