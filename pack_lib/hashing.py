"""RFC 6962 (section 2.1) hashing: leaf hash, interior node, tree hash; all SHA-256."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

HEX64 = re.compile(r"[0-9a-f]{64}\Z")
"""A digest as text."""
EMPTY_TREE = hashlib.sha256(b"").digest()


def leaf_hash(body: bytes) -> bytes:
    """SHA-256(0x00 || body), 32 bytes."""
    return hashlib.sha256(b"\x00" + body).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 || left || right) of two 32-byte digests, 32 bytes."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class TreeHasher:
    """Tree hash over leaf digests given one by one, in O(log n) memory.

    The 32-byte digests given are the leaves' hashes themselves (RFC 6962 MTH of one entry); they are not hashed
    again. The tree over none is SHA-256 of the empty string.
    """

    def __init__(self) -> None:
        self.count = 0
        self._stack: list[bytes] = []  # roots of perfect subtrees, largest first: one for each set bit of count

    def add(self, digest: bytes) -> None:
        sha256, stack = hashlib.sha256, self._stack
        n = self.count = self.count + 1
        while not n & 1:  # two perfect subtrees of one size stand at the end: they become one
            digest = sha256(b"\x01" + stack.pop() + digest).digest()
            n >>= 1
        stack.append(digest)

    def extend(self, digests: Sequence[bytes]) -> None:
        """Add many digests: perfect subtrees level by level, with less work a digest than one by one."""
        sha256, at, end = hashlib.sha256, 0, len(digests)
        while at < end:
            # The largest perfect subtree that may stand here: no larger than the last one before it, or what is left.
            size = 1 << (end - at).bit_length() - 1
            if self.count:
                size = min(size, self.count & -self.count)
            level = digests[at : at + size]
            while len(level) > 1:
                pairs = iter(level)
                level = [sha256(b"\x01" + left + right).digest() for left, right in zip(pairs, pairs, strict=True)]
            at += size
            self.count += size
            digest, n = level[0], self.count // size
            while not n & 1:
                digest = sha256(b"\x01" + self._stack.pop() + digest).digest()
                n >>= 1
            self._stack.append(digest)

    def root(self) -> bytes:
        """The tree hash of what was added so far, 32 bytes; more may be added after."""
        if not self._stack:
            return EMPTY_TREE
        digest = self._stack[-1]
        for left in reversed(self._stack[:-1]):
            digest = node_hash(left, digest)
        return digest


NODE_LENGTH = 3 * 32 + 1
"""Bytes of an interior node as one record: its hash, its children's hashes, its level (a leaf has level 0, a node one
more than its higher child)."""


def tree_nodes(digests: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """RFC 6962 tree hash over 32-byte leaf digests, with the record of every interior node, lower levels first."""
    if not digests:
        return EMPTY_TREE, []
    sha256 = hashlib.sha256
    nodes: list[bytes] = []
    row, level = digests, 0
    while len(row) > 1:
        # The last of an odd number has no partner on this level and stands in the next as it is: the same tree as
        # the RFC's, which splits at the largest power of two.
        level += 1
        end = bytes((level,))
        pairs = iter(row)
        made = [
            sha256(b"\x01" + left + right).digest() + left + right + end
            for left, right in zip(pairs, pairs, strict=False)
        ]
        nodes += made
        row = [node[:32] for node in made] + list(row[len(row) & ~1 :])
    return row[0], nodes


def tree_hash(digests: Iterable[bytes]) -> bytes:
    """RFC 6962 tree hash over 32-byte leaf digests, 32 bytes."""
    tree = TreeHasher()
    for digest in digests:
        tree.add(digest)
    return tree.root()
