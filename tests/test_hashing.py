"""RFC 6962 hashing against the recursion the text of the RFC gives, and its published vectors."""

from __future__ import annotations

import hashlib

from pack_lib.hashing import TreeHasher, leaf_hash, node_hash, tree_hash
from tests.support import tree

# Certificate Transparency's reference inputs and roots of the trees over the first 1 to 8 of them.
INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def test_published_vectors() -> None:
    leaves = [leaf_hash(bytes.fromhex(text)) for text in INPUTS]
    assert [tree_hash(leaves[:count]).hex() for count in range(1, 9)] == ROOTS
    assert tree_hash([]) == hashlib.sha256(b"").digest()


def test_prefixes() -> None:
    assert leaf_hash(b"body") == hashlib.sha256(b"\x00body").digest()
    assert node_hash(b"l" * 32, b"r" * 32) == hashlib.sha256(b"\x01" + b"l" * 32 + b"r" * 32).digest()


def test_every_size_and_every_prefix_as_the_recursion_has_it() -> None:
    leaves = [leaf_hash(str(number).encode()) for number in range(130)]
    hasher = TreeHasher()
    for count in range(131):
        assert hasher.root() == tree_hash(leaves[:count]) == tree(leaves[:count])
        assert hasher.count == count
        if count < 130:
            hasher.add(leaves[count])
