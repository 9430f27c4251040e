"""This project's builder, as ``benchmarks.measure`` calls it: one shard into a fresh local store."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def build(db: str, workdir: str, workers: int) -> dict[str, Any]:
    """Repack the shard at ``db`` into a store under ``workdir``; pinning it is part of what is measured."""
    # PLACEHOLDER: the one place to fit to the builder's final signature (``workers``, an immutable source).
    from pack_lib.repack import repack  # type: ignore[import-not-found, unused-ignore]

    from pack_lib.stores import open_store  # type: ignore[attr-defined, unused-ignore]

    root = Path(workdir)
    store_dir, staging = root / "store", root / "staging"
    store_dir.mkdir(parents=True)
    staging.mkdir()
    repack(db, open_store(str(store_dir)), corpus="benchmark", shard="shard-0", staging=staging, workers=workers)
    packs = [path.stat().st_size for path in (store_dir / "packs").glob("*.tar.zst")]
    return {"bytes_out": sum(packs), "packs": len(packs)}
