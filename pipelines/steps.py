"""What every step does around its one call: check the partition, hold the shard's lock, turn errors into failures.

Steps of a run pass their state on through the shard's staging folder, under the name of the run's first try.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from pack_lib.build import ShardBuild
from pack_lib.errors import Busy, PackError, StoreTrouble
from pack_lib.stores import Store
from pipelines.resources import Cold

Context = dg.AssetExecutionContext | dg.AssetCheckExecutionContext

RETRY_TAG = "dagster/retry_on_asset_or_op_failure"
"""Of a run: whether run retries (dagster.yaml) try it again after a step failed."""
_PASSING = (StoreTrouble, Busy)
_EVERY = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step at work on one shard, the shard's lock held."""

    build: ShardBuild
    store: Store
    shard: str
    begun: float = field(default_factory=time.monotonic)

    def result(self, metadata: Mapping[str, Any], version: str | None = None) -> dg.MaterializeResult[None]:
        """The asset's result. ``version`` is its data version: equal for equal content."""
        return dg.MaterializeResult(
            metadata={**metadata, "seconds": dg.MetadataValue.float(round(time.monotonic() - self.begun, 3))},
            data_version=None if version is None else dg.DataVersion(version),
        )


@contextmanager
def shard_step(context: dg.AssetExecutionContext, cold: Cold) -> Iterator[Step]:
    """The shard of this run's partition, its build locked. Raises dg.Failure, with one line, for any PackError."""
    shard = partition_shard(context, cold)
    with failures(context):
        report = Observer(context.log_event, context.asset_key, shard)
        build = cold.build(shard, first_run(context.run), report)
        store = cold.store()
        build.check_apart(store)
        with build.held():
            yield Step(build, store, shard)


def partition_shard(context: Context, cold: Cold) -> str:
    """The shard this run is for. A run may be stored with any partition, or none: Dagster's CLI checks neither."""
    shard: str | None = context.partition_key if context.has_partition_key else None
    known = ", ".join(sorted(cold.settings.sources))
    if shard is None:
        raise dg.Failure(f"the run has no partition; give one shard of {known}", allow_retries=False)
    if shard not in cold.settings.sources:
        raise dg.Failure(f"no shard {shard!r} in COLD_SOURCES; known are {known}", allow_retries=False)
    return shard


def first_run(run: dg.DagsterRun) -> str:
    """Id of the run that this one is a retry of, or its own: a retry goes on with the pin of the run it retries."""
    return run.root_run_id or run.run_id


def is_new_try(run: dg.DagsterRun) -> bool:
    """Whether a person asked for this run again: then its source, perhaps mended since, is to be pinned anew."""
    return run.parent_run_id is not None and "dagster/retry_number" not in run.tags


@contextmanager
def failures(context: Context) -> Iterator[None]:
    """Turn a PackError into dg.Failure. Only what may pass by itself (a store, a lock) lets the run be retried."""
    try:
        yield
    except PackError as error:
        passing = isinstance(error, _PASSING)
        context.instance.add_run_tags(context.run.run_id, {RETRY_TAG: str(passing).lower()})
        # The line says all; only a bug of ours is worth its stack.
        cause = error if type(error) is PackError else None
        kind = dg.MetadataValue.text(type(error).__name__)
        raise dg.Failure(str(error), metadata={"error": kind}, allow_retries=passing) from cause


class Observer:
    """A reporter of `pack_lib.build` that says how far a long step is: an event a minute, not one a chunk."""

    def __init__(
        self,
        log_event: Callable[[dg.AssetObservation], None],
        asset: dg.AssetKey,
        shard: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log_event = log_event
        self._asset = asset
        self._shard = shard
        self._clock = clock
        self._last = clock()

    def __call__(self, step: str, done: int, total: int) -> None:
        now = self._clock()
        if now - self._last < _EVERY:
            return
        self._last = now
        metadata: dict[str, Any] = {"step": step, "done": done, "total": total}
        self._log_event(dg.AssetObservation(self._asset, metadata=metadata, partition=self._shard))
