"""The one resource, ``cold``: settings turned into a shard's build and its store. It holds no secret.

Credentials of a store are found by its own client (environment, profile, role) where it is opened, in the run.
"""

from __future__ import annotations

from pack_lib.build import Job, Reporter, ShardBuild
from pack_lib.pack.parameters import parameters_for
from pack_lib.sources import open_source
from pack_lib.stores import Store, open_store
from pipelines.settings import Settings


class Cold:
    """See the module. Made once a process, when definitions are built; opens nothing before it is asked."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __repr__(self) -> str:
        return f"Cold({self.settings.corpus!r}, {len(self.settings.sources)} shards)"

    def store(self) -> Store:
        """The store packs go to. Raises BadInput."""
        return open_store(self.settings.store)

    def build(self, shard: str, run: str, report: Reporter) -> ShardBuild:
        """The steps of one run over one shard. Raises BadInput."""
        settings = self.settings
        job = Job(
            settings.corpus,
            shard,
            open_source(settings.sources[shard]),
            settings.profile,
            parameters_for(settings.cap, settings.level, settings.layout),
            settings.staging,
            settings.workers,
        )
        return ShardBuild(job, run, report)
