"""Jobs. A step runs inside its run's process: a killed run leaves no child that goes on writing beside the retry."""

from __future__ import annotations

import dagster as dg

from pipelines.assets import GROUP

LONGEST = 6 * 60 * 60
"""Seconds after which a run is ended; after a reboot nothing else would end it."""
_TAGS = {
    "dagster/max_runtime": str(LONGEST),
    # A retry starts over and finds in staging what is done; if another run of the shard came in between, it finds
    # nothing there and does all of it, where one that started from the failed step could only fail.
    "dagster/retry_strategy": "ALL_STEPS",
}


def build_jobs() -> list[dg.UnresolvedAssetJobDefinition]:
    """``repack``: a shard's whole way into the store, read back at the end. ``verify``: reads it back again."""
    everything = dg.AssetSelection.groups(GROUP)
    return [
        dg.define_asset_job(
            "repack",
            selection=everything,
            description="Packs one shard, uploads what the store lacks, commits the set and reads it back.",
            executor_def=dg.in_process_executor,
            tags=_TAGS,
        ),
        dg.define_asset_job(
            "verify",
            selection=dg.AssetSelection.checks_for_assets("pack_set"),
            description="Reads one shard's newest committed set back from the store; builds nothing.",
            executor_def=dg.in_process_executor,
            tags=_TAGS,
        ),
    ]
