"""Memory is bounded: a shard of many times the allowed memory is packed, verified and hydrated within it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.kill.small_shard import SCHEMA

ROOT = Path(__file__).resolve().parents[2]
WORK = """
import json, re, sys
from pathlib import Path
from pack_lib.repack import repack
from pack_lib.stores.local import LocalStore
from pack_lib.verify import verify_set
from tests.kill.small_shard import profile
folder = Path(sys.argv[1])
store = LocalStore(folder / "store")
def peak():
    # ru_maxrss would count what the process was before exec
    return int(re.search(r"VmHWM:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1]) // 1024
base = peak()
made = repack(str(folder / "shard.db"), store, profile=profile(), cap=None, workers=2, staging=folder / "staging").set
packed = peak()
report = verify_set(store, made, profile())
print(json.dumps({"base": base, "packed": packed, "verified": peak(), "chunks": report.chunks,
                  "bytes": report.body_bytes, "complete": report.complete, "findings": report.findings}))
"""


def large_shard(path: Path, chunks: int, size: int, edges: int) -> Path:
    """Chunks of no document, compressible, and edges of a few large groups."""
    filler = " ".join(str(number) for number in range(size))[: size - 16]
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + SCHEMA + "BEGIN")
        sha256 = hashlib.sha256

        def rows():  # type: ignore[no-untyped-def]
            for number in range(chunks):
                body = f"{number:016d}{filler}"
                yield number, sha256(b"\0" + body.encode()).hexdigest(), size, body

        db.executemany("INSERT INTO chunks VALUES (NULL, ?, ?, ?, ?)", rows())
        db.executemany(
            "INSERT INTO edges VALUES (?, 'cites', ?)", ((f"doc:{n % 3}", f"{n * 7919:064x}") for n in range(edges))
        )
        db.execute("COMMIT")
    return path


@pytest.mark.parametrize(
    ("chunks", "size", "limit"),
    [(100_000, 4_000, 300), (400, 1_000_000, 300)],
    ids=["many short bodies", "few long bodies"],
)
def test_a_shard_larger_than_memory(tmp_path: Path, chunks: int, size: int, limit: int) -> None:
    """About 400 MB of bodies and 200,000 edges in three groups; peak resident memory in MiB."""
    large_shard(tmp_path / "shard.db", chunks, size, 200_000)
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)
    assert found["complete"]
    assert not found["findings"]
    assert (found["chunks"], found["bytes"]) == (chunks, chunks * size)
    assert found["packed"] < limit, found
    assert found["verified"] < limit, found


def test_room_of_memory_that_is_refused(tmp_path: Path) -> None:
    """With a hard limit on the address space, of which the allocators reserve far more than they use, it is done."""
    large_shard(tmp_path / "shard.db", 30_000, 4_000, 10_000)
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1200 << 20,) * 2)\n" + WORK
    done = subprocess.run(
        [sys.executable, "-c", limited, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["chunks"] == 30_000
