"""The assets, one partition a shard, in the order of the flow. Each calls one step of ``pack_lib.build.ShardBuild``.

They are checkpoints of one run: what a step leaves stands in the staging folder, so no value passes between them.

No "from __future__ import annotations" here: Dagster reads the annotation of ``context`` and takes no text for it.
"""

from collections.abc import Callable, Sequence

import dagster as dg

from pack_lib.pack_set import SetPack
from pack_lib.upload import Uploaded
from pipelines import metadata
from pipelines.resources import Cold
from pipelines.steps import is_new_try, shard_step

GROUP = "corpus"
ColdParam = dg.ResourceParam[Cold]
Result = dg.MaterializeResult[None]


def corpus_snapshot(context: dg.AssetExecutionContext, cold: ColdParam) -> Result:
    """One consistent copy of the shard's database in the staging folder; every later step reads only that.

    A retry of a run goes on with the copy the run made; a new run, also one that a person re-executes, makes its own.
    """
    with shard_step(context, cold) as step:
        if is_new_try(context.run):
            step.build.finish()
        pin = step.build.pin(keep_packs=True)
        step.build.check()
        return step.result(metadata.of_pin(pin, step.build.job.source.location))


def chunk_selection(context: dg.AssetExecutionContext, cold: ColdParam) -> Result:
    """Which chunks will be packed: every distinct leaf hash, and in what order. A descriptor, no bodies."""
    with shard_step(context, cold) as step:
        selection = step.build.select()
        return step.result(metadata.of_selection(selection, step.build.job.parameters.layout), selection.bodies_root)


def shard_tables(context: dg.AssetExecutionContext, cold: ColdParam) -> Result:
    """The shipped tables but the edges as columnar JSONL, cut into parts, compressed, their digests known.

    In layout 3 the bodies too, because they decide which rows need not be shipped.
    """
    with shard_step(context, cold) as step:
        tables = step.build.stage_tables(fanned_in=False)
        return step.result(metadata.of_tables(tables), metadata.tables_version(tables))


def fan_in_edges(context: dg.AssetExecutionContext, cold: ColdParam) -> Result:
    """The edges, grouped by what they point to, each group with a sorted array of where they come from."""
    with shard_step(context, cold) as step:
        tables = step.build.stage_tables(fanned_in=True)
        return step.result(metadata.of_fanned(tables), metadata.tables_version(tables))


def cold_packs(context: dg.AssetExecutionContext, cold: ColdParam) -> Result:
    """The capped packs, in the staging folder, each one read back from its finished file.

    If the store's newest set is of this very snapshot and these parameters, none is built.
    """
    with shard_step(context, cold) as step:
        made, sent = step.build.committed(step.store), step.build.uploaded()
        packs: Sequence[SetPack]
        if made is not None:
            packs = made.packs
        elif sent is not None:  # by an earlier try, which removed them from staging
            packs = [item.pack for item in sent]
        else:
            packs = [SetPack.of(pack) for pack in step.build.build_packs()]
        size = step.build.pin(keep_packs=True).size
        facts = metadata.of_packs(step.build.plan(), packs, size, up_to_date=made is not None)
        return step.result(facts, metadata.packs_version(packs))


def bucket_objects(context: dg.AssetExecutionContext, cold: ColdParam) -> Result:
    """The packs and their sidecars in the store, which are put only where absent; staging's copies are removed.

    What the store holds is compared with what was verified before this ends. Nothing is visible to a reader yet.
    """
    with shard_step(context, cold) as step:
        made = step.build.committed(step.store)
        uploads: list[Uploaded] = []
        packs: Sequence[SetPack]
        if made is None:
            uploads = step.build.upload_staged(step.store)
            packs = [item.pack for item in uploads]
        else:
            packs = made.packs
        facts = metadata.of_uploads(uploads, step.store.location, up_to_date=made is not None)
        return step.result(facts, metadata.packs_version(packs))


def pack_set(context: dg.AssetExecutionContext, cold: ColdParam) -> Result:
    """The set manifest, which makes the packs one set of this snapshot; committed last, then named in the catalog."""
    with shard_step(context, cold) as step:
        build, store = step.build, step.store
        made, sent = build.committed(store), build.uploaded()
        if made is None:
            made = build.commit(store, [item.pack for item in build.upload_staged(store)])
        pin = build.pin(keep_packs=True)
        build.finish()
        facts = metadata.of_set(made, store.location, pin.size, up_to_date=sent is None)
        return step.result(facts, metadata.packs_version(made.packs))


_FLOW: tuple[tuple[Callable[..., Result], tuple[str, ...], set[str]], ...] = (
    (corpus_snapshot, (), {"sqlite", "snapshot"}),
    (chunk_selection, ("corpus_snapshot",), {"sqlite"}),
    (shard_tables, ("chunk_selection",), {"json", "zstd"}),
    (fan_in_edges, ("corpus_snapshot",), {"json", "zstd"}),
    (cold_packs, ("chunk_selection", "shard_tables", "fan_in_edges"), {"tar", "zstd"}),
    (bucket_objects, ("cold_packs",), {"bucket"}),
    (pack_set, ("bucket_objects",), {"json"}),
)


def build_assets(partitions: dg.PartitionsDefinition[str]) -> list[dg.AssetsDefinition]:
    """All assets over these partitions; their descriptions are the docstrings above."""
    return [
        dg.asset(partitions_def=partitions, deps=list(deps), group_name=GROUP, kinds=kinds)(function)
        for function, deps, kinds in _FLOW
    ]
