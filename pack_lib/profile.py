"""The corpus profile: which tables travel in packs, in what order, by which keys, and what stays behind.

A profile is TOML (docs/format.md, "Profile"); the built-in ones are package data under ``pack_lib/profiles``.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
import sqlite3
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from pack_lib.errors import BadInput, NotFound

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}\Z")
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
FTS_SHADOWS = ("_data", "_idx", "_content", "_docsize", "_config")
RULES = ("document_roots", "merkle_nodes", "audit_chain")
_RULE_ORDER = {"document_roots": ("chunks", ("document_root", "ordinal")), "audit_chain": ("audit_events", ("seq",))}
"""Rules recompute what lies in rows that follow each other: the order of these tables must begin so."""


@dataclass(frozen=True, slots=True)
class ShippedTable:
    """One table that travels. Rows are ordered by ``columns`` as given; the merge key comes first in them."""

    name: str
    columns: tuple[str, ...]
    merge_key: tuple[str, ...]
    fan_in: str | None = None
    """The column that is gathered into arrays; it is the last of ``columns``. None: rows ship one by one."""

    @property
    def file_columns(self) -> tuple[str, ...]:
        """Column names of the table's JSONL header line."""
        if self.fan_in is None:
            return self.columns
        return (*self.columns[:-1], fanned_column(self.fan_in))


def fanned_column(column: str) -> str:
    """Name of the array column that a fanned-in column becomes."""
    return column + "s"


@dataclass(frozen=True, slots=True)
class Bodies:
    """Where bodies are: ``content`` of ``table``, known by the hex leaf hash in column ``hash``."""

    table: str
    hash: str
    content: str
    type: str = "text"
    """Stored type of every body: ``text`` or ``blob``."""
    document: str | None = None
    """The column with the root of the document a body belongs to; with it come the next two."""
    ordinal: str | None = None
    """Place of the body in its document, from 0."""
    size: str | None = None
    """Bytes of the body."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents' table, for layout 3: ``root`` is the tree hash of a document's leaf hashes, by ordinal."""

    table: str
    root: str
    order: tuple[str, ...]
    """Documents stand in packs in the order of these columns, then of their roots: related ones together."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The table of the interior nodes of documents' trees; a leaf has level 0, a node one more than its children."""

    table: str
    node: str
    left: str
    right: str
    level: str


@dataclass(frozen=True, slots=True)
class Profile:
    """See the module. ``schema`` is the DDL hydration creates an empty database with; None: it must exist."""

    name: str
    ship: tuple[ShippedTable, ...]
    bodies: Bodies
    exclude: tuple[str, ...] = ()
    rebuild: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    schema: str | None = field(default=None, repr=False)
    documents: Documents | None = None
    nodes: Nodes | None = None

    def table(self, name: str) -> ShippedTable | None:
        return next((table for table in self.ship if table.name == name), None)

    def is_known(self, table: str) -> bool:
        """Whether the profile says what becomes of this table: shipped, excluded, rebuilt (with its shadows)."""
        if any(table == shipped.name for shipped in self.ship):
            return True
        if any(table == name or table in {name + tail for tail in FTS_SHADOWS} for name in self.rebuild):
            return True
        return any(fnmatch.fnmatchcase(table, pattern) for pattern in self.exclude)

    def check(self, tables: Mapping[str, tuple[str, ...]], where: str, leave_behind: Iterable[str] = ()) -> None:
        """Compare with a source's tables (name -> insertable columns) and name every disagreement.

        Raises BadInput for a missing shipped table or column, and for a table or a column that the profile does not
        know; tables matching the patterns ``leave_behind`` are known to stay.
        """
        patterns = tuple(leave_behind)
        unknown = [
            name
            for name in sorted(tables)
            if not self.is_known(name) and not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        ]
        missing = [table.name for table in self.ship if table.name not in tables]
        lacking, extra = [], []
        for table in self.ship:
            there = tables.get(table.name)
            if there is None:
                continue
            wanted = [*table.columns, *([self.bodies.content] if table.name == self.bodies.table else [])]
            lacking += [f"{table.name}.{column}" for column in wanted if column not in there]
            extra += [f"{table.name}.{column}" for column in there if column not in wanted]
        kept = [name for name in self.rebuild if name + "_content" in tables]
        problems = [
            f"{what}: {', '.join(names)}"
            for what, names in (
                ("missing table", missing),
                ("missing column", lacking),
                ("table unknown to the profile", unknown),
                ("column unknown to the profile", extra),
                ("full-text table with a text of its own, which a rebuild would lose", kept),
            )
            if names
        ]
        if problems:
            cure = "add it to the profile (ship, exclude or rebuild)"
            if unknown and not (missing or lacking or extra or kept):
                cure += " or name it with --leave-behind"
            raise BadInput(f"{where} does not fit profile {self.name}: {'; '.join(problems)}; {cure}")


def _strings(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise BadInput(f"{what} must be a list of names")
    return tuple(value)


def _known_keys(value: Any, allowed: set[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{what} must be a table of settings")
    stray = sorted(set(value) - allowed)
    if stray:
        raise BadInput(f"{what}: unknown setting {', '.join(stray)}; known are {', '.join(sorted(allowed))}")
    return value


def _shipped(value: Any, where: str) -> ShippedTable:
    entry = _known_keys(value, {"table", "columns", "merge_key", "fan_in"}, f"{where}, [[ship]]")
    name = entry.get("table")
    if not isinstance(name, str) or not _TABLE.match(name):
        raise BadInput(f"{where}, [[ship]]: table must be a plain name (letters, digits, _), not {name!r}")
    what = f"{where}, table {name}"
    columns = _strings(entry.get("columns"), f"{what}: columns")
    key = _strings(entry.get("merge_key"), f"{what}: merge_key")
    fan_in = entry.get("fan_in")
    if not columns or len(set(columns)) != len(columns):
        raise BadInput(f"{what}: columns must be distinct and at least one")
    if not key or set(key) - set(columns):
        raise BadInput(f"{what}: merge_key must name some of its columns")
    if fan_in is not None and (columns[-1] != fan_in or set(key) != set(columns) or len(columns) < 2):
        raise BadInput(f"{what}: fan_in must be the last column of several, and merge_key all of them")
    ordered = (*key, *(column for column in columns if column not in key)) if fan_in is None else columns
    return ShippedTable(name, ordered, key, fan_in)


def parse_profile(text: str, where: str, schema_of: Mapping[str, str] | None = None) -> Profile:
    """A profile from its TOML. ``where`` names it in errors; ``schema_of`` gives the texts of schema files.

    Raises BadInput for anything it does not understand.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{where} is not TOML: {error}") from None
    raw = _known_keys(
        raw, {"name", "schema", "exclude", "rules", "bodies", "documents", "nodes", "rebuild", "ship"}, where
    )
    name = raw.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise BadInput(f"{where}: name must be letters, digits, '.', '_' or '-', not {name!r}")
    ship = tuple(_shipped(entry, where) for entry in raw.get("ship", []))
    if not ship or len({table.name for table in ship}) != len(ship):
        raise BadInput(f"{where}: [[ship]] must name tables, each once")
    body = _known_keys(raw.get("bodies"), {item.name for item in fields(Bodies)}, f"{where}, [bodies]")
    if not {"table", "hash", "content"} <= set(body) or body.get("type", "text") not in ("text", "blob"):
        raise BadInput(f"{where}, [bodies]: table, hash and content are needed; type is text or blob")
    bodies = Bodies(**body)
    holder = next((table for table in ship if table.name == bodies.table), None)
    if holder is None or holder.fan_in or bodies.hash not in holder.columns or bodies.content in holder.columns:
        raise BadInput(f"{where}, [bodies]: table must be shipped with column hash and without column content")
    documents = _documents(raw.get("documents"), bodies, ship, where)
    nodes = _nodes(raw.get("nodes"), documents, ship, where)
    rules = _strings(raw.get("rules", []), f"{where}: rules")
    if set(rules) - set(RULES):
        raise BadInput(f"{where}: unknown rule {', '.join(sorted(set(rules) - set(RULES)))}; known: {', '.join(RULES)}")
    for rule in rules:
        name_of, first = _RULE_ORDER.get(rule, ("", ()))
        ordered = next((table.columns for table in ship if table.name == name_of), first)
        if ordered[: len(first)] != first:
            raise BadInput(f"{where}: rule {rule} needs the merge key of {name_of} to begin with {', '.join(first)}")
    rebuild = tuple(
        str(_known_keys(entry, {"name"}, f"{where}, [[rebuild]]").get("name")) for entry in raw.get("rebuild", [])
    )
    schema = raw.get("schema")
    if schema is not None:
        if schema not in (schema_of or {}):
            raise BadInput(f"{where}: schema file {schema!r} is not beside it")
        schema = (schema_of or {})[schema]
        _check_schema(schema, ship, bodies, where)
    exclude = _strings(raw.get("exclude", []), f"{where}: exclude")
    return Profile(name, ship, bodies, exclude, rebuild, rules, schema, documents, nodes)


def _documents(value: Any, bodies: Bodies, ship: tuple[ShippedTable, ...], where: str) -> Documents | None:
    linked = (bodies.document, bodies.ordinal, bodies.size)
    if value is None:
        if any(linked):
            raise BadInput(f"{where}: document, ordinal and size of [bodies] need a section [documents]")
        return None
    what = f"{where}, [documents]"
    entry = _known_keys(value, {"table", "root", "order"}, what)
    order = _strings(entry.get("order", []), f"{what}: order")
    shipped = {table.name: table for table in ship}
    table = shipped.get(entry.get("table", ""))
    if table is None or table.fan_in or table.merge_key != (entry.get("root"),) or set(order) - set(table.columns):
        raise BadInput(f"{what}: table must be shipped with root as its whole merge key, and order name columns of it")
    if not all(linked) or set(linked) - set(shipped[bodies.table].columns):
        raise BadInput(f"{what}: [bodies] must say document, ordinal and size, columns of {bodies.table}")
    return Documents(table.name, table.merge_key[0], order)


def _nodes(value: Any, documents: Documents | None, ship: tuple[ShippedTable, ...], where: str) -> Nodes | None:
    if value is None:
        return None
    what = f"{where}, [nodes]"
    entry = _known_keys(value, {item.name for item in fields(Nodes)}, what)
    table = next((table for table in ship if table.name == entry.get("table")), None)
    names = [entry.get(name) for name in ("node", "left", "right", "level")]
    if documents is None or table is None or table.merge_key != (names[0],):
        raise BadInput(f"{what}: table must be shipped with node as its whole merge key, and [documents] be there")
    if len(set(names)) != 4 or set(table.columns) != set(names):
        raise BadInput(f"{what}: node, left, right and level must be the columns of {table.name}")
    return Nodes(**entry)


def _check_schema(schema: str, ship: tuple[ShippedTable, ...], bodies: Bodies, where: str) -> None:
    """A target made with this schema must be able to take rows before their bodies. Raises BadInput.

    What this SQLite cannot create (a full-text table without FTS5, say) is left for hydration to say.
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as scratch:
        with contextlib.suppress(sqlite3.OperationalError):
            scratch.executescript(schema)
        for table in ship:
            found = {row[1]: row for row in scratch.execute(f"PRAGMA table_info({table.name})")}
            missing = [column for column in table.columns if column not in found] if found else []
            if missing:
                raise BadInput(f"{where}: its schema has no column {table.name}.{missing[0]}")
            if table.name == bodies.table and found and (bodies.content not in found or found[bodies.content][3]):
                raise BadInput(
                    f"{where}: its schema needs a column {bodies.table}.{bodies.content} that may be NULL: "
                    "rows are inserted before their bodies"
                )


def load_profile(name_or_path: str = "corpus") -> Profile:
    """A built-in profile by name, or the user's own by its file (a name with a ``/`` or ending in ``.toml``).

    Raises NotFound if there is none, BadInput if it cannot be understood.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        try:
            text = path.read_text("utf-8")
            siblings = {file.name: file.read_text("utf-8") for file in path.parent.glob("*.sql")}
        except FileNotFoundError:
            raise NotFound(f"profile {path} does not exist") from None
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"profile {path} cannot be read: {error}") from None
        return parse_profile(text, f"profile {path}", siblings)
    folder = resources.files("pack_lib") / "profiles"
    texts = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith((".toml", ".sql"))}
    if f"{name_or_path}.toml" not in texts:
        known = sorted(name.removesuffix(".toml") for name in texts if name.endswith(".toml"))
        raise NotFound(f"no profile {name_or_path!r}; built in are {', '.join(known)}, or give a file ending in .toml")
    return parse_profile(texts[f"{name_or_path}.toml"], f"profile {name_or_path}", texts)
