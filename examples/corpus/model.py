"""What passes between the steps: a file, the document read from it, a shard's summary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class CorpusError(Exception):
    """A bad input or an output that cannot be written; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file and the uri it is known by in the corpus, e.g. ``stdlib:json/decoder.py``."""

    uri: str
    path: Path

    @property
    def relative(self) -> str:
        """The uri without its scheme: a path with ``/``."""
        return self.uri.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is no document, and why."""

    uri: str
    reason: str


@dataclass(frozen=True, slots=True)
class Link:
    """An edge before its target is looked up.

    ``target`` is the dst_uri, None when it cannot be told. Where a dotted name may be a module or a name in one
    (``from a import b``), ``parent`` is the module meant if ``target`` is not in the corpus.
    """

    edge_type: str
    target: str | None
    anchor: str | None = None
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is read out of a text besides the text: the title, its origin, the first paragraph, links, terms."""

    title: str | None = None
    title_from: str | None = None
    summary: str | None = None
    links: tuple[Link, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()  # (alias, term)


@dataclass(frozen=True, slots=True)
class Document:
    """A text cut into chunks. ``root`` is the RFC 6962 tree hash, in hex, over ``leaves`` (32 bytes each)."""

    uri: str
    mime: str
    root: str
    sha256: str
    chunks: tuple[str, ...]
    leaves: tuple[bytes, ...]
    facts: Facts

    @property
    def title(self) -> str:
        """The text's own title, else the file's name."""
        return self.facts.title or self.uri.rpartition("/")[2].rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """A finished shard: where it is, rows a table, and the file's size in bytes."""

    name: str
    path: Path
    rows: dict[str, int]
    n_bytes: int
