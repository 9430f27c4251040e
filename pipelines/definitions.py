"""The code location: `build_defs` puts the parts together. Tests call it with settings of their own."""

from __future__ import annotations

import dagster as dg

from pipelines.assets import build_assets
from pipelines.checks import build_checks
from pipelines.jobs import build_jobs
from pipelines.partitions import shard_partitions
from pipelines.resources import Cold
from pipelines.schedules import build_schedules
from pipelines.settings import Settings


def build_defs(settings: Settings | None = None) -> dg.Definitions:
    """Fresh definitions, by default of what the environment says. Raises what `Settings.from_env` raises."""
    made = Settings.from_env() if settings is None else settings
    partitions = shard_partitions(made)
    jobs = build_jobs()
    return dg.Definitions(
        assets=build_assets(partitions),
        asset_checks=build_checks(partitions),
        jobs=jobs,
        schedules=build_schedules(made, jobs[0]),
        resources={"cold": Cold(made)},
        # Also for what is materialized in the UI without a job; see `pipelines.jobs`.
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """What Dagster loads: evaluated when it does, not at import."""
    return build_defs()
