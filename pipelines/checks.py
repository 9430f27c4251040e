"""Asset checks: what readers will get, read back from the store; also alone, long after the packs were made."""

import time
import warnings

import dagster as dg

from pack_lib.catalog import latest_sets
from pack_lib.errors import Damaged, NotFound
from pack_lib.pack_set import PackSet, read_set
from pack_lib.stores import Store
from pack_lib.verify import verify_set
from pipelines import metadata
from pipelines.assets import ColdParam
from pipelines.steps import Observer, failures, partition_shard

ASSET = dg.AssetKey("pack_set")


def newest_set(store: Store, corpus: str, shard: str) -> PackSet:
    """The shard's newest committed set. Raises NotFound if it has none."""
    for entry in latest_sets(store):
        if (entry.corpus, entry.shard) == (corpus, shard):
            return read_set(store, entry.key)
    raise NotFound(f"{store.location} holds no set of shard {corpus}/{shard}; run job repack for it")


def reads_back_whole(context: dg.AssetCheckExecutionContext, cold: ColdParam) -> dg.AssetCheckResult:
    """Reads the shard's newest committed set back, every byte, and recomputes every digest, root, node and chain.

    Damage is an error and fails the run. A corpus that was packed faithfully but contradicts itself is a warning.
    """
    shard = partition_shard(context, cold)
    settings, begun = cold.settings, time.monotonic()
    with failures(context):
        store = cold.store()
        observer = Observer(context.op_execution_context.log_event, ASSET, shard)
        try:
            made = newest_set(store, settings.corpus, shard)
            report = verify_set(store, made, settings.profile, lambda done, total: observer("verify", done, total))
        except (Damaged, NotFound) as error:
            return dg.AssetCheckResult(
                passed=False, severity=dg.AssetCheckSeverity.ERROR, description=str(error), metadata={"shard": shard}
            )
    return dg.AssetCheckResult(
        passed=not report.findings,
        severity=dg.AssetCheckSeverity.WARN if report.findings else dg.AssetCheckSeverity.ERROR,
        description=report.findings[0] if report.findings else None,
        metadata={"shard": shard, **metadata.of_report(made, report), "seconds": round(time.monotonic() - begun, 3)},
    )


def build_checks(partitions: dg.PartitionsDefinition[str]) -> list[dg.AssetChecksDefinition]:
    """All checks over these partitions."""
    with warnings.catch_warnings():
        # A check without partitions would show the last shard's result as that of all.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [dg.asset_check(asset=ASSET, blocking=True, partitions_def=partitions)(reads_back_whole)]
