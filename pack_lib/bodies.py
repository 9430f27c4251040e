"""Staging a shard's bodies for layout 3, with the tables of which rows follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from pack_lib.derived import lines_digest, stage_chunks, stage_nodes
from pack_lib.errors import BadInput
from pack_lib.fsio import HashingFile
from pack_lib.pack.format import Parameters
from pack_lib.pack.layout3 import MAX_APART, BodyStager, StagedBodies
from pack_lib.profile import Bodies, Profile
from pack_lib.progress import Progress, no_progress
from pack_lib.selection import check_chunks, distinct_bodies
from pack_lib.sources.base import ChunkBatch, PinnedSource
from pack_lib.tables import StagedTable

BODIES_FILE = "bodies.frames"


def derived_tables(profile: Profile) -> tuple[str, ...]:
    """The tables that are staged with the bodies."""
    return (profile.bodies.table, *([profile.nodes.table] if profile.nodes else []))


def stage_bodies(
    pinned: PinnedSource,
    profile: Profile,
    folder: Path,
    parameters: Parameters,
    workers: int,
    where: str,
    progress: Progress = no_progress,
    again: Callable[[], PinnedSource] | None = None,
) -> tuple[StagedBodies, list[StagedTable]]:
    """Read, check, cut and compress all bodies into ``folder/bodies.frames``; stage the `derived_tables` too.

    ``again`` opens the pinned state once more, for a thread that reads the nodes' table beside the bodies.

    Memory: a few frames a worker, one document's hashes, 65,536 nodes. Raises BadInput, naming the leaf hash, for a
    body that is missing or does not match it; StoreTrouble for a folder that cannot be written.
    """
    total = pinned.count(profile.bodies.table)
    with ExitStack() as opened:
        node_lines = opened.enter_context(_lines_of_nodes(pinned, profile, again))
        file = opened.enter_context(HashingFile(folder, digest=False))
        stager = opened.enter_context(BodyStager(file, parameters, workers, want_nodes=profile.nodes is not None))
        if profile.documents is not None:
            chunks = pinned.document_chunks(profile.bodies, profile.documents)
            if not _stage_documents(chunks, profile.bodies, stager, total, where, progress):
                # Roots here are something else than tree hashes: nothing is gained by knowing which.
                stager.forget_documents()
        _stage_loose(pinned, profile, stager, total, where, progress)
        staged = stager.finish()
        file.commit(BODIES_FILE)
        settings = folder, parameters, workers
        tables = [stage_chunks(pinned, profile, staged, *settings)]
        if stager.nodes is not None:
            nodes = stage_nodes(pinned, profile, staged, stager.nodes, *settings, node_lines())
            tables += [nodes] if nodes else []
    return staged, tables


@contextmanager
def _lines_of_nodes(
    pinned: PinnedSource, profile: Profile, again: Callable[[], PinnedSource] | None
) -> Iterator[Callable[[], str]]:
    """The nodes' `lines_digest`, to be called for when it is needed."""
    nodes = profile.nodes
    if nodes is None or again is None:
        yield lambda: lines_digest(pinned, profile, nodes.table) if nodes else ""
        return

    def digest() -> str:
        with closing(again()) as opened:
            return lines_digest(opened, profile, nodes.table)

    with ThreadPoolExecutor(1, thread_name_prefix="nodes") as thread:
        yield thread.submit(digest).result


def _stage_documents(
    chunks: Iterator[ChunkBatch], bodies: Bodies, stager: BodyStager, total: int, where: str, progress: Progress
) -> bool:
    """All documents; False, if too many of them cannot be members."""
    for batch in chunks:
        stager.add(batch, check_chunks(batch, bodies, where))
        if len(stager.apart) > MAX_APART:
            return False
        progress(stager.rows, total)
    stager.end_documents()
    return True


def _stage_loose(
    pinned: PinnedSource, profile: Profile, stager: BodyStager, total: int, where: str, progress: Progress
) -> None:
    """All bodies of rows that are of no member."""
    bodies = profile.bodies
    done = stager.rows - stager.rows_apart
    if done < total:
        if profile.documents is None or stager.forgot:
            rows = pinned.bodies(bodies.table, bodies.hash, bodies.content, bodies.type)
        else:
            rows = pinned.bodies_apart(bodies, profile.documents, stager.apart)

        def counted() -> Iterator[list[tuple[str, bytes]]]:
            nonlocal done
            for batch in rows:
                done += len(batch)
                yield batch
                progress(done, total)

        for distinct in distinct_bodies(counted(), bodies, where):
            stager.add_loose(distinct)
    if done != total:
        raise BadInput(f"{where} gave {done:,} of {total:,} bodies; an index is damaged: REINDEX it")
