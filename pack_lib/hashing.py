"""RFC 6962 (section 2.1) hashing: leaf hash, interior node, tree hash; all SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

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

    def root(self) -> bytes:
        """The tree hash of what was added so far, 32 bytes; more may be added after."""
        if not self._stack:
            return EMPTY_TREE
        digest = self._stack[-1]
        for left in reversed(self._stack[:-1]):
            digest = node_hash(left, digest)
        return digest


def tree_hash(digests: Iterable[bytes]) -> bytes:
    """RFC 6962 tree hash over 32-byte leaf digests, 32 bytes."""
    tree = TreeHasher()
    for digest in digests:
        tree.add(digest)
    return tree.root()
