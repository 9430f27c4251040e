"""Partitions: one a shard, fixed when definitions are built. A new shard appears when the code location is reloaded."""

from __future__ import annotations

import dagster as dg

from pipelines.settings import Settings


def shard_partitions(settings: Settings) -> dg.StaticPartitionsDefinition:
    """The shards, the biggest first, so that a backfill starts with what takes longest."""
    return dg.StaticPartitionsDefinition(list(settings.sources))
