"""Where corpora come from: a live database that can be pinned, and the pinned snapshot that is read."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from pack_lib.errors import BadInput
from pack_lib.sources.base import PinnedSource, Source

__all__ = ["PinnedSource", "Source", "open_source"]


def open_source(url: str) -> Source:
    """A source by its path, ``file:`` or ``sqlite:`` URL. Raises BadInput for any other scheme. Opens nothing yet."""
    from pack_lib.sources.sqlite import SqliteSource

    if "://" in url:
        parts = urlsplit(url)
        if parts.scheme not in ("file", "sqlite") or parts.netloc:
            raise BadInput(f"source {parts.scheme}://... is not supported; give the path of a SQLite database")
        return SqliteSource(Path(unquote(parts.path)))
    return SqliteSource(Path(url))
