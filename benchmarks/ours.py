"""This project's steps over one shard, as ``benchmarks.measure`` calls them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pack_lib.build as way
from benchmarks.instead import bytes_under
from benchmarks.measure import cpu_seconds
from pack_lib.errors import BadInput
from pack_lib.hydrate import hydrate_set
from pack_lib.pack.frames import usable_cores
from pack_lib.pack.parameters import parameters_for
from pack_lib.pack_set import read_set
from pack_lib.profile import load_profile
from pack_lib.repack import repack
from pack_lib.sources import open_source
from pack_lib.stores import LocalStore, open_store
from pack_lib.upload import Uploaded
from pack_lib.verify import raise_findings, verify_set

LEVEL = 3
"""Of zstd, here and in everything beside it."""
STAGES_BODIES = hasattr(way.ShardBuild, "stage_bodies")
"""Whether the bodies are compressed in a step of their own, which can be timed alone."""
_CHOOSES_LAYOUT = "layout" in inspect.signature(repack).parameters


def layouts() -> tuple[int, ...]:
    """The layouts that `repacked` can write, the newest first."""
    writable = []
    for layout in (3, 2) if _CHOOSES_LAYOUT else (2,):
        try:
            parameters_for(layout=layout)
        except BadInput:
            continue
        writable.append(layout)
    return tuple(writable)


def repacked(
    db: str, store: str, staging: str, layout: int, immutable: bool = False, level: int = LEVEL
) -> dict[str, Any]:
    """`repack` into a new store, as one pack. ``bytes_out``: all files of the store."""
    chosen: dict[str, Any] = {"layout": layout} if _CHOOSES_LAYOUT else {}
    done = repack(
        db, LocalStore(Path(store)), cap=None, level=level, staging=Path(staging), immutable=immutable, **chosen
    )
    return {"bytes_out": bytes_under(Path(store)), "key": done.set.key}


def bodies_staged(db: str, staging: str, layout: int) -> dict[str, Any]:
    """``stage_bodies`` alone, after the pin: ``seconds`` and ``cpu_seconds`` are of it and of nothing before it."""
    root, parameters = Path(staging), parameters_for(None, LEVEL, layout)
    job = way.Job("benchmark", "shard-0", open_source(db), load_profile(), parameters, root, usable_cores())
    shard: Any = way.ShardBuild(job, "benchmark")
    with shard.held():
        shard.pin()
        before = bytes_under(root)
        cpu, begun = cpu_seconds(), time.perf_counter()
        shard.stage_bodies()
        seconds, cpu = time.perf_counter() - begun, cpu_seconds() - cpu
        staged = bytes_under(root) - before
        shard.finish()
    return {"bytes_out": staged, "seconds": seconds, "cpu_seconds": cpu}


def verified(store: str, key: str) -> dict[str, Any]:
    """Every byte of a committed set, and the corpus's rules. Raises Inconsistent if one is broken."""
    opened = LocalStore(Path(store))
    report = verify_set(opened, read_set(opened, key), load_profile())
    raise_findings(report)
    if not report.complete:
        raise ValueError("the set is not the whole snapshot")
    return {"bytes_out": None}


def hydrated(store: str, key: str, target: str) -> dict[str, Any]:
    """A committed set into a new database."""
    opened = LocalStore(Path(store))
    done = hydrate_set(opened, read_set(opened, key), Path(target), load_profile())
    if done.without_body or done.conflict_count:
        raise ValueError(f"{done.without_body} rows without a body, {done.conflict_count} conflicts")
    return {"bytes_out": bytes_under(Path(target))}


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
    shard: Any = way.ShardBuild(job, "benchmark")
    sent: list[Uploaded] = []

    def put(pack: Any) -> None:
        with timed("store"):
            sent.extend(shard.upload(store, [pack]))

    with shard.held():
        with timed("pin"):
            shard.pin()
        with timed("select"):
            shard.select()
        if STAGES_BODIES:
            with timed("bodies"):
                shard.stage_bodies()
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
    built = sum(steps.get(name, 0.0) for name in ("select", "bodies", "tables", "edges", "packs"))
    return {
        "bytes_out": sum(upload.pack.size for upload in sent),
        "packs": len(sent),
        "build_seconds": round(built, 3),
        "steps": {name: round(seconds, 3) for name, seconds in steps.items()},
    }
