"""The lines of a manifest after the first: what bodies a pack holds, in order. docs/format.md, "Catalogue"."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from pack_lib.errors import Damaged
from pack_lib.hashing import HEX64
from pack_lib.pack.format import MAX_BODY, MAX_DOCUMENT_BODIES, MAX_MEMBER, PackHeader


@dataclass(slots=True)
class Catalogue:
    """Neighbouring lines; documents come before bodies of none."""

    documents: list[tuple[str, list[int]]] = field(default_factory=list)
    """(root, bytes of each body)."""
    bodies: list[tuple[str, int, int]] = field(default_factory=list)
    """(leaf hash, offset of the body from the end of the manifest member, bytes); layout 3 states no offset: -1."""


class CatalogueParser:
    """Lines in batches, each checked, and their sums at the end."""

    def __init__(self, header: PackHeader, where: str) -> None:
        self._header = header
        self._where = where
        self._counts = [0, 0, 0]
        self._last = ""
        self.max_line = 4096 if header.layout == 2 else 4 << 20
        """Bytes of a line at most: some 90 for a body; a document has a size for each of its bodies."""

    def parse(self, lines: bytes) -> Catalogue:
        """Whole lines without the last LF. Raises Damaged."""
        try:
            rows: list[Any] = json.loads(b"[" + lines.replace(b"\n", b",") + b"]")
            made = _layout2(rows) if self._header.layout == 2 else _layout3(rows)
            # The one canonical form leaves no room for a second reading of a line.
            again = json.dumps(rows, separators=(",", ":"))[1:-1].replace("],[", "]\n[")
        except (ValueError, TypeError, RecursionError) as error:
            raise Damaged(f"{self._where}: a catalogue line is wrong ({error})") from None
        if again.encode() != lines:
            raise Damaged(f"{self._where}: a catalogue line is not in canonical form")
        hashes = [entry[0] for entry in made.bodies]
        if hashes and (hashes[0] <= self._last or any(a >= b for a, b in pairwise(hashes))):
            raise Damaged(f"{self._where}: the catalogue's leaf hashes do not ascend near {hashes[0]}")
        if made.documents and self._last:
            raise Damaged(f"{self._where}: document {made.documents[0][0]} comes after bodies of no document")
        self._last = hashes[-1] if hashes else self._last
        self._counts[0] += len(made.documents)
        self._counts[1] += len(made.bodies) + sum(len(sizes) for _, sizes in made.documents)
        self._counts[2] += sum(entry[2] for entry in made.bodies) + sum(sum(sizes) for _, sizes in made.documents)
        return made

    def finish(self, rest: bytes) -> None:
        """Compare with the first line; ``rest``: what came after the last LF. Raises Damaged."""
        pack, (documents, bodies, size) = self._header, self._counts
        if rest or (documents, bodies, size) != (pack.documents, pack.chunks, pack.body_bytes):
            raise Damaged(
                f"{self._where}: the catalogue lists {documents:,} documents, {bodies:,} bodies of {size:,} bytes, "
                f"its first line says {pack.documents:,}, {pack.chunks:,} of {pack.body_bytes:,}"
            )


def _layout2(rows: list[Any]) -> Catalogue:
    bodies = [(leaf_hash, offset, size) for leaf_hash, offset, size in rows]
    _check([body[0] for body in bodies], [body[2] for body in bodies])
    if set(map(type, (body[1] for body in bodies))) != {int}:
        raise ValueError("an offset is no integer")
    return Catalogue(bodies=bodies)


def _layout3(rows: list[Any]) -> Catalogue:
    made = Catalogue()
    for name, sizes in rows:
        if isinstance(sizes, list):
            if made.bodies:
                raise ValueError("a document comes after bodies of no document")
            made.documents.append((name, sizes))
        else:
            made.bodies.append((name, -1, sizes))
    counts = [len(sizes) for _, sizes in made.documents]
    if counts and not 0 < min(counts) <= max(counts) <= MAX_DOCUMENT_BODIES:
        raise ValueError("a document's number of bodies")
    sizes = [*chain.from_iterable(sizes for _, sizes in made.documents), *(body[2] for body in made.bodies)]
    _check([name for name, _ in rows], sizes)
    if any(sum(sizes) > MAX_MEMBER for _, sizes in made.documents):
        raise ValueError("a document is larger than a tar member")
    return made


def _check(hashes: list[Any], sizes: list[Any]) -> None:
    if set(map(type, hashes)) != {str} or set(map(type, sizes)) != {int}:
        raise ValueError("its cells are not a text and integers")
    if not all(map(HEX64.match, hashes)) or min(sizes) < 0 or max(sizes) > MAX_BODY:
        raise ValueError("a hash or a size")
