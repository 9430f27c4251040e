"""Cuts a text into chunks, and makes the Merkle nodes over their leaf hashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pack_lib.hashing import node_hash

LEAST, MOST = 300, 1100
"""A chunk's usual size in bytes of UTF-8; only a document's last chunk is smaller, none is larger."""


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """The lines with their sizes in bytes; one that is longer than a chunk comes in pieces."""
    for line in text.splitlines(keepends=True):
        size = len(line.encode())
        if size <= MOST:
            yield line, size
            continue
        step = MOST // 4  # characters: even of four bytes each they fit
        for start in range(0, len(line), step):
            piece = line[start : start + step]
            yield piece, len(piece.encode())


def cut(text: str) -> list[str]:
    """The chunks of a text, in order; joined they are the text. An empty text has none.

    A cut falls after a blank line once ``LEAST`` bytes are reached, or before the line that would exceed ``MOST``.
    So a paragraph that several documents share, such as a licence, often is the same chunk in each.
    """
    chunks: list[str] = []
    lines: list[str] = []
    held = 0
    for piece, size in _pieces(text):
        if lines and held + size > MOST:
            chunks.append("".join(lines))
            lines, held = [], 0
        lines.append(piece)
        held += size
        if held >= LEAST and piece.isspace():
            chunks.append("".join(lines))
            lines, held = [], 0
    if lines:
        chunks.append("".join(lines))
    return chunks


MerkleNode = tuple[bytes, bytes, bytes, int]
"""(node_hash, left_hash, right_hash, level): a leaf has level 0, a node one more than its higher child."""


def merkle_nodes(leaves: Sequence[bytes]) -> list[MerkleNode]:
    """The interior nodes of the RFC 6962 tree over the leaf hashes, children first; none for fewer than two leaves."""
    nodes: list[MerkleNode] = []

    def build(start: int, end: int) -> tuple[bytes, int]:
        if end - start == 1:
            return leaves[start], 0
        split = start + (1 << (end - start - 1).bit_length() - 1)
        left, left_level = build(start, split)
        right, right_level = build(split, end)
        digest, level = node_hash(left, right), max(left_level, right_level) + 1
        nodes.append((digest, left, right, level))
        return digest, level

    if leaves:
        build(0, len(leaves))
    return nodes
