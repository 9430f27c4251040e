"""Made the golden sets once: ``python -m tests.golden.make LAYOUT FOLDER``. They are never made again, only added to.

A new layout or format version gets a folder of its own under ``tests/data/golden``; what stands there is read forever.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from pack_lib.profile import load_profile
from pack_lib.repack import repack
from pack_lib.stores.local import LocalStore
from pack_lib.verify import verify_set
from tests.golden.digests import digests
from tests.support import leaf, shard_rows, tree, write_shard

CAP = 14_000


def golden_shard(path: Path) -> Path:
    """Every case that a reader tells apart, in as few bytes as may be."""
    rows = shard_rows(9, chunk_bytes=120, edges=60, seed=3)
    # One document larger than a frame; one with bodies of no bytes; texts with NUL and beyond the BMP.
    for uri, bodies in (
        ("doc:large", [f"{part} " * 60_000 for part in ("seven", "of", "nine", "is", "one")] + ["and its end"] * 2),
        ("doc:odd", ["", "a\0b", "", "\U0001f600\u20ac\u00e9", '"\\\n\t\x01\x7f']),
    ):
        leaves = [leaf(body.encode()) for body in bodies]
        nodes: list[tuple[str, str, str, int]] = []
        root = tree([bytes.fromhex(digest) for digest in leaves], nodes).hex()
        rows["documents"].append((root, uri, None, None, len(bodies), "2024-01-01T00:00:00Z"))
        rows["chunks"] += [
            (root, place, digest, len(body.encode()), body)
            for place, (digest, body) in enumerate(zip(leaves, bodies, strict=True))
        ]
        rows["merkle_nodes"] = sorted({*rows["merkle_nodes"], *nodes})
    write_shard(path, rows)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in (
            # Cells of every type, and texts that JSON or UTF-8 cannot spell.
            "INSERT INTO concept_token_idf VALUES ('real', 9e999, 1), ('less', -9e999, 2), ('zero', -0.0, 3), "
            "('tiny', 5e-324, 4), ('whole', 1.0, 9223372036854775807), ('least', 2, -9223372036854775808)",
            "INSERT INTO term_aliases VALUES (CAST(x'ff61' AS TEXT), 'no UTF-8'), ('a' || char(0) || 'b', 'NUL')",
            "INSERT INTO providence_cache VALUES ('blob', x'00ff', NULL, x'', 'x')",
            "INSERT INTO edges VALUES ('', 'links', NULL, NULL, NULL), ('', 'links', NULL, NULL, NULL)",
            # A document whose root is no tree hash, one whose ordinals begin at 100, and one node that is not there.
            f"UPDATE chunks SET document_root = '{'0' * 64}' WHERE document_root = "
            "(SELECT document_root FROM documents WHERE uri = 'doc:4')",
            f"UPDATE documents SET document_root = '{'0' * 64}' WHERE uri = 'doc:4'",
            "UPDATE chunks SET ordinal = ordinal + 100 WHERE document_root = "
            "(SELECT document_root FROM documents WHERE uri = 'doc:7')",
            "DELETE FROM merkle_nodes WHERE node_hash = (SELECT min(node_hash) FROM merkle_nodes)",
            f"INSERT INTO merkle_nodes VALUES ('{'f' * 64}', NULL, NULL, 7)",
        ):
            db.execute(statement)
    return path


def main(layout: int, folder: Path) -> None:
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    shard, store, profile = golden_shard(scratch / "golden.db"), LocalStore(folder), load_profile()
    made = repack(str(shard), store, corpus="golden", shard="golden", cap=CAP, layout=layout, staging=scratch / "s").set
    report = verify_set(store, made, profile)
    assert report.complete and len(made.packs) >= 3
    expected = {"set": made.key, "findings": report.findings, "tables": digests(shard, profile)}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
