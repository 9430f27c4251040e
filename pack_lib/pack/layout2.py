"""Layout 2: a tar member a chunk (``blobs/<hash[:2]>/<hash[2:]>``), ascending by leaf hash."""

from __future__ import annotations

from collections.abc import Iterable

from pack_lib.errors import BadInput
from pack_lib.pack.format import MAX_BODY, Parameters
from pack_lib.pack.frames import FramePool
from pack_lib.pack.tar import BLOCK, header_pieces, padding
from pack_lib.pack.writer import Entry, PackSetWriter
from pack_lib.progress import Progress, no_progress


def write_bodies(
    batches: Iterable[list[tuple[str, bytes]]],
    writer: PackSetWriter,
    parameters: Parameters,
    workers: int,
    total: int,
    progress: Progress = no_progress,
) -> int:
    """Cut (leaf hash, body) pairs into frames at member boundaries, compress them in threads, write them in order.

    A frame holds as many members as fit into the frame size, and at least one. ``total``: bodies, for the progress.
    Returns the number of bodies.
    """
    frame_size = parameters.frame_size
    with FramePool[list[Entry]](parameters.level, workers, writer.add_bodies) as pool:
        pieces: list[bytes] = []
        entries: list[Entry] = []
        filled = done = 0
        for batch in batches:
            for leaf_hash, body in batch:
                size = len(body)
                taken = BLOCK + size + -size % BLOCK
                if filled + taken > frame_size and entries:
                    pool.push(entries, b"".join(pieces))
                    done += len(entries)
                    progress(done, total)
                    pieces, entries, filled = [], [], 0
                if size > MAX_BODY:
                    raise BadInput(
                        f"the body {leaf_hash} has {size:,} bytes; a pack holds bodies of up to {MAX_BODY:,}"
                    )
                name = f"blobs/{leaf_hash[:2]}/{leaf_hash[2:]}".encode()
                pieces += header_pieces(name, size)
                pieces.append(body)
                pieces.append(padding(size))
                entries.append((leaf_hash, filled + BLOCK, size))
                filled += taken
        if entries:
            pool.push(entries, b"".join(pieces))
            done += len(entries)
        pool.drain()
    progress(done, total)
    return done
