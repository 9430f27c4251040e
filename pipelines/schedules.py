"""Schedules. They start stopped: turn them on in the UI, or with ``dagster schedule start``."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from pipelines.settings import Settings


def build_schedules(settings: Settings, repack: dg.UnresolvedAssetJobDefinition) -> list[dg.ScheduleDefinition]:
    """``every_shard``: one run a shard at each tick; a shard that did not change is found up to date."""

    @dg.schedule(
        name="every_shard",
        job=repack,
        cron_schedule=settings.schedule,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Requests one run of every shard, the biggest first.",
    )
    def every_shard(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        tick = context.scheduled_execution_time.isoformat()
        for shard in settings.sources:
            yield dg.RunRequest(run_key=f"{shard} {tick}", partition_key=shard)

    return [every_shard]
