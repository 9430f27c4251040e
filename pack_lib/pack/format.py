"""Names, numbers and the manifest's first line of pack format version 2. `docs/format.md` is the normative text."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from pack_lib.columnar import Derived
from pack_lib.errors import BadInput, Damaged, UnknownVersion
from pack_lib.hashing import HEX64
from pack_lib.values import canonical_json

FORMAT = "cold-pack"
VERSION = 2
LAYOUTS = (2, 3)
DEFAULT_LAYOUT = 3
ORDERS = {2: "leaf_hash", 3: "document"}
"""Layout -> the order of bodies: a member a body ascending by leaf hash, or a member a document."""
MANIFEST = "manifest.jsonl"
CATALOGUE_COLUMNS = {2: ("leaf_hash", "offset", "size"), 3: ("hash", "sizes")}

DEFAULT_CAP = 4_400_000_000
"""Bytes: a DVD-R with room for the file system and a safe edge."""
BD_CAP = 23_000_000_000
"""Bytes: a single-layer BD-R (25,025,314,816) likewise, with room for defect management."""
MIN_CAP = 4096
"""Bytes; below it a cap is refused at once."""
DEFAULT_LEVEL = 9
FRAME_SIZE = 1 << 20
PART_SIZE = 64 << 20
MAX_FIRST_LINE = 64 << 20
"""A manifest's first line longer than this is refused before it is read into memory, bytes."""
MAX_MEMBER = 8**11 - 1
"""The size field of a ustar header holds no more, bytes."""
MAX_DOCUMENT_BODIES = 1 << 18
"""A document of more bodies is no member of layout 3: its bodies stand alone."""
MAX_BODY = 1 << 30
"""A body is one value in memory; SQLite's own limit is 1,000,000,000 bytes. A larger one is refused on both ways."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_PART = re.compile(r"tables/([A-Za-z_][A-Za-z0-9_]{0,62})(?:\.([0-9]{5,9}))?\.jsonl\Z")


def blob_name(leaf_hash: str) -> str:
    return f"blobs/{leaf_hash[:2]}/{leaf_hash[2:]}"


def document_name(root: str) -> str:
    return f"documents/{root[:2]}/{root[2:]}"


def part_name(table: str, number: int | None) -> str:
    """Member name of a table (None) or of its part, numbered from 1."""
    return f"tables/{table}.jsonl" if number is None else f"tables/{table}.{number:05d}.jsonl"


def _power_of_two_below(value: int) -> int:
    return 1 << max(value, 1).bit_length() - 1


def frame_size_for(cap: int | None) -> int:
    """Uncompressed bytes of a frame: 1 MiB, or for a small cap the largest power of two up to 1/16 of it."""
    return FRAME_SIZE if cap is None else min(FRAME_SIZE, _power_of_two_below(cap // 16))


def part_size_for(cap: int | None) -> int:
    """Uncompressed bytes of a table part: 64 MiB, or the largest power of two up to 1/16 of the cap."""
    return PART_SIZE if cap is None else min(PART_SIZE, _power_of_two_below(cap // 16))


def check_name(value: str, what: str) -> str:
    """A corpus' or shard's name, which becomes part of keys and paths. Raises BadInput."""
    if not NAME.match(value) or value.endswith("."):
        raise BadInput(
            f"{what} {value!r}: use up to 63 letters, digits, '.', '_' and '-', the first a letter or a digit"
        )
    return value


@dataclass(frozen=True, slots=True)
class TablePart:
    """One member that holds a table, or a part of one."""

    member: str
    rows: int
    size: int
    """Bytes of the member, header line included."""
    sha256: str
    offset: int = 0
    """Of its first byte, counted from the end of the manifest member."""

    @property
    def table(self) -> str:
        return split_part_name(self.member)[0]


def split_part_name(member: str) -> tuple[str, int | None]:
    """(table, part number or None) of a table's member name. Raises Damaged for any other name."""
    match = _PART.match(member)
    if not match:
        raise Damaged(f"{member!r} is no name of a table")
    return match[1], int(match[2]) if match[2] else None


@dataclass(frozen=True, slots=True)
class PackHeader:
    """The manifest's first line: all that the pack is, but for its catalogue of bodies."""

    corpus: str
    shard: str
    profile: str
    snapshot_root: str
    number: int
    """Place of the pack in its set, from 1."""
    chunks: int
    """Bodies in the pack; in layout 3 one that several documents share stands in each of them."""
    body_bytes: int
    tables: tuple[TablePart, ...]
    layout: int = 2
    documents: int = 0
    """Members that are documents (layout 3)."""
    derived: tuple[tuple[str, Derived], ...] = ()
    """By table what its header line says is derived, so that a pack alone will do (layout 3); names ascending."""

    @property
    def content_bytes(self) -> int:
        """Bytes of all tables and bodies in the pack."""
        return self.body_bytes + sum(part.size for part in self.tables)

    def encode(self) -> bytes:
        """The line with its LF."""
        value: dict[str, Any] = {
            "_columns": list(CATALOGUE_COLUMNS[self.layout]),
            "body_bytes": self.body_bytes,
            "chunks": self.chunks,
            "corpus": self.corpus,
            "format": FORMAT,
            "layout": self.layout,
            "number": self.number,
            "order": ORDERS[self.layout],
            "profile": self.profile,
            "shard": self.shard,
            "snapshot_root": self.snapshot_root,
            "tables": [
                {
                    "member": part.member,
                    "offset": part.offset,
                    "rows": part.rows,
                    "sha256": part.sha256,
                    "size": part.size,
                }
                for part in self.tables
            ],
            "version": VERSION,
        }
        if self.layout == 3:
            value["documents"] = self.documents
            value["derived"] = {name: asdict(derived) for name, derived in self.derived}
        return canonical_json(value) + b"\n"


def _whole(value: Any, limit: int = 2**63 - 1) -> bool:
    return type(value) is int and 0 <= value <= limit


def parse_header(line: bytes, where: str) -> PackHeader:
    """The manifest's first line. Raises UnknownVersion or Damaged, naming ``where``."""
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{where}: the manifest's first line is not JSON ({error})") from None
    version, layout = value.get("version"), value.get("layout")
    if value.get("format") != FORMAT:
        raise UnknownVersion(
            f"{where}: not a pack of format {FORMAT} version {VERSION}; a newer or older build may read it"
        )
    if version != VERSION:
        raise UnknownVersion(f"{where}: pack version {version!r}; this build reads {VERSION}: use a newer one")
    if layout not in LAYOUTS:
        raise UnknownVersion(f"{where}: pack layout {layout!r}; this build reads {', '.join(map(str, LAYOUTS))}")
    try:
        parts = tuple(
            TablePart(part["member"], part["rows"], part["size"], part["sha256"], part["offset"])
            for part in value["tables"]
        )
        header = PackHeader(
            corpus=value["corpus"],
            shard=value["shard"],
            profile=value["profile"],
            snapshot_root=value["snapshot_root"],
            number=value["number"],
            chunks=value["chunks"],
            body_bytes=value["body_bytes"],
            tables=parts,
            layout=layout,
            documents=value["documents"] if layout == 3 else 0,
            derived=tuple((name, Derived.from_json(item)) for name, item in value.get("derived", {}).items()),
        )
        for part in parts:
            split_part_name(part.member)
            if not (_whole(part.rows) and _whole(part.size, MAX_MEMBER) and _whole(part.offset)):
                raise ValueError(f"numbers of {part.member}")
            if not HEX64.match(part.sha256):
                raise ValueError(f"digest of {part.member}")
        counts = (header.number, header.chunks, header.body_bytes, header.documents)
        if not (all(map(_whole, counts)) and header.number > 0):
            raise ValueError("counts")
        if not all(NAME.match(name) for name in (header.corpus, header.shard, header.profile)):
            raise ValueError("corpus, shard or profile")
        if not HEX64.match(header.snapshot_root):
            raise ValueError("snapshot root")
        if header.encode() != line:
            raise ValueError("it is not in canonical form")
    except (KeyError, TypeError, ValueError, AttributeError, Damaged) as error:
        raise Damaged(f"{where}: the manifest's first line is wrong: {error}") from None
    return header


@dataclass(frozen=True, slots=True)
class Parameters:
    """What, with the snapshot, decides the bytes of its packs. Stated in the set manifest."""

    layout: int
    cap: int | None
    """Compressed bytes of a pack at most; None: one pack of any size."""
    level: int
    frame_size: int
    part_size: int
    libzstd: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
