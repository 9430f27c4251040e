"""Real text without a download: the Python sources and texts that the running interpreter came with."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

MIN_BODY, MAX_BODY = 300, 1_100
"""Bounds of a body in bytes; the upper one excluded."""

_SUFFIXES = {".py", ".pyi", ".txt", ".rst", ".md"}


def _files(root: Path, without: Path | None, rng: random.Random) -> list[Path]:
    found = sorted(
        path
        for path in root.rglob("*")
        if path.suffix in _SUFFIXES and path.is_file() and not (without is not None and path.is_relative_to(without))
    )
    rng.shuffle(found)  # so that few chunks and many have the same mixture of text
    return found


def _texts(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Name and UTF-8 text of each usable file, over and over: the standard library, then installed packages."""
    paths = sysconfig.get_paths()
    stdlib, site = Path(paths["stdlib"]), Path(paths["purelib"])
    own_site = stdlib / "site-packages"
    while True:
        for root, without in ((stdlib, own_site), (site, None)):
            for path in _files(root, without, rng):
                raw = path.read_bytes()
                try:
                    raw.decode()
                except UnicodeDecodeError:
                    continue
                if b"\0" not in raw:
                    yield path.relative_to(root).as_posix(), raw


class Cutter:
    """Cuts documents, one after the other, out of that endless text.

    Where the text comes round again the cuts fall elsewhere, so that bodies stay distinct (but for a few in a
    million). Holds one file and the rest of the one before.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._texts = _texts(rng)
        self._name, self._text = next(self._texts)
        self._at = 0

    def document(self, n_chunks: int) -> tuple[str, list[bytes]]:
        """The name of the file in which it begins, and ``n_chunks`` bodies of valid UTF-8."""
        name = self._name
        return name, [self._chunk() for _ in range(n_chunks)]

    def _chunk(self) -> bytes:
        end = self._at + MIN_BODY + int(self._rng.random() * (MAX_BODY - MIN_BODY))
        while end >= len(self._text):
            end -= self._at
            self._name, more = next(self._texts)
            self._text, self._at = self._text[self._at :] + more, 0
        while self._text[end] & 0xC0 == 0x80:  # never inside a character
            end -= 1
        body = self._text[self._at : end]
        self._at = end
        return body
