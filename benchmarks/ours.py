"""This project's builder, as ``benchmarks.measure`` calls it: one shard into a fresh local store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pack_lib.build as way
from pack_lib.pack.parameters import parameters_for
from pack_lib.profile import load_profile
from pack_lib.sources import open_source
from pack_lib.stores import open_store
from pack_lib.upload import Uploaded


def build(db: str, workdir: str, workers: int) -> dict[str, Any]:
    """Repack the shard at ``db`` into a store under ``workdir``, all of it: pin, build, read back, store, commit.

    ``steps`` gives the seconds of each; ``build_seconds`` of those that the plain way has too (it pins nothing, reads
    nothing back and commits nothing).
    """
    root = Path(workdir)
    store_dir = root / "store"
    store_dir.mkdir(parents=True)
    store = open_store(str(store_dir))
    steps: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        steps[name] = steps.get(name, 0.0) + time.perf_counter() - begun

    read_back = vars(way)["verify_pack"]

    def timed_read_back(*arguments: Any) -> Any:
        with timed("read back"):
            return read_back(*arguments)

    vars(way)["verify_pack"] = timed_read_back
    job = way.Job("benchmark", "shard-0", open_source(db), load_profile(), parameters_for(), root / "staging", workers)
    shard = way.ShardBuild(job, "benchmark")
    sent: list[Uploaded] = []

    def put(pack: Any) -> None:
        with timed("store"):
            sent.extend(shard.upload(store, [pack]))

    with shard.held():
        with timed("pin"):
            shard.pin()
        with timed("select"):
            shard.select()
        with timed("tables"):
            shard.stage_tables(fanned_in=False)
        with timed("edges"):
            shard.stage_tables(fanned_in=True)
        with timed("packs"):
            shard.build_packs(put)
        steps["packs"] -= steps["read back"] + steps["store"]
        with timed("commit"):
            shard.commit(store, [upload.pack for upload in sent])
        shard.finish()
    built = sum(steps[name] for name in ("select", "tables", "edges", "packs"))
    return {
        "bytes_out": sum(upload.pack.size for upload in sent),
        "packs": len(sent),
        "build_seconds": round(built, 3),
        "steps": {name: round(seconds, 3) for name, seconds in steps.items()},
    }
