"""``python -m examples.compare SOURCE TARGET``: is a hydrated database what its source is?

Plain SQL, written by hand, and nothing of pack_lib: what packed and hydrated the rows must not be what judges them.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

TABLES: dict[str, tuple[str, ...]] = {
    "documents": ("document_root", "uri", "title", "mime", "n_chunks", "added_at"),
    "chunks": ("document_root", "ordinal", "leaf_hash", "n_bytes", "content"),
    "merkle_nodes": ("node_hash", "left_hash", "right_hash", "level"),
    "edges": ("src_root", "edge_type", "dst_root", "dst_uri", "anchor"),
    "audit_events": ("seq", "event_type", "payload", "prev_hash", "event_hash", "at"),
    "derivations": ("derived_root", "source_root", "method", "params"),
    "concept_relations": ("concept", "relation", "other", "weight"),
    "concept_token_idf": ("token", "idf", "n_documents"),
    "providence_cache": ("claim_hash", "verdict", "score", "evidence", "at"),
    "citation_aliases": ("alias", "document_root"),
    "term_aliases": ("alias", "term"),
    "snapshots": ("seq", "snapshot_root", "n_documents", "n_chunks", "at"),
    "document_http_meta": ("document_root", "url", "status", "etag", "last_modified", "headers"),
}
_TOKENS_ASKED = 4


@dataclass(frozen=True, slots=True)
class TableComparison:
    """One table's rows in both databases, and how many distinct rows are in one only or in another number there.

    For a full-text table the rows are the matches of a few tokens. ``problem`` says why a table could not be compared.
    """

    table: str
    source_rows: int = 0
    target_rows: int = 0
    only_source: int = 0
    only_target: int = 0
    problem: str | None = None

    @property
    def equal(self) -> bool:
        """Same values, same types, same number of each row."""
        return self.problem is None and not (self.only_source or self.only_target)


def _attach(db: sqlite3.Connection, name: str, path: Path) -> None:
    path = path.resolve(strict=True)
    wal = Path(f"{path}-wal")
    # An immutable file is read without its WAL, so one that has rows waiting in it is opened as a live one.
    mode = "mode=ro" if wal.exists() and wal.stat().st_size else "mode=ro&immutable=1"
    db.execute(f"ATTACH ? AS {name}", (f"{path.as_uri()}?{mode}",))


@contextmanager
def _both(source: Path, target: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None, uri=True)) as db:
        db.text_factory = lambda raw: raw.decode(errors="replace")  # texts are read for words to ask, never compared
        _attach(db, "source", source)
        _attach(db, "target", target)
        yield db


def _number(db: sqlite3.Connection, sql: str, values: Sequence[str] = ()) -> int:
    return int(db.execute(sql, values).fetchone()[0])


def _difference(
    db: sqlite3.Connection, bags: dict[str, str], table: str, values: Sequence[str] = ()
) -> TableComparison:
    """Compares two queries whose last column is how often the row before it occurs."""
    rows = {name: _number(db, f"SELECT coalesce(sum(n), 0) FROM ({bag})", values) for name, bag in bags.items()}
    ours, theirs = bags["source"], bags["target"]
    both = (*values, *values)
    return TableComparison(
        table,
        rows["source"],
        rows["target"],
        _number(db, f"SELECT count(*) FROM ({ours} EXCEPT {theirs})", both),
        _number(db, f"SELECT count(*) FROM ({theirs} EXCEPT {ours})", both),
    )


def _compare_table(db: sqlite3.Connection, table: str) -> TableComparison:
    columns = TABLES[table]
    for name in ("source", "target"):
        held = tuple(row[0] for row in db.execute("SELECT name FROM pragma_table_info(?, ?)", (table, name)))
        if not held:
            return TableComparison(table, problem=f"{name} has no such table")
        if held != columns:
            return TableComparison(table, problem=f"{name} has the columns {', '.join(held)}")
    # 1 and 1.0 are one value to SQL, and 1 and '1' may be one to a reader: so the types are compared as well.
    # The unary plus takes the column's collation and affinity away.
    cells = ", ".join(f"+{column} AS {column}, typeof({column}) AS {column}_type" for column in columns)
    places = ", ".join(str(place) for place in range(1, 2 * len(columns) + 1))
    bags = {
        name: f"SELECT {cells}, count(*) AS n FROM {name}.{table} GROUP BY {places}" for name in ("source", "target")
    }
    return _difference(db, bags, table)


def _compare_search(db: sqlite3.Connection, table: str, tokens: Sequence[str]) -> TableComparison:
    """Asks both for every token: the same rows must answer, not only as many."""
    index, known_by = f"{table}_fts", "leaf_hash" if table == "chunks" else "document_root"
    query = " OR ".join(f'"{token}"' for token in tokens)
    bags = {
        name: f"SELECT t.{known_by}, count(*) AS n FROM {name}.{index} AS f JOIN {name}.{table} AS t"
        f" ON t.rowid = f.rowid WHERE f.{index} MATCH ? GROUP BY 1"
        for name in ("source", "target")
    }
    comparisons = [_difference(db, bags, index, [f'"{token}"']) for token in tokens]
    # A match whose row is gone would vanish in the join: the bare counts must agree with it.
    for name in ("source", "target"):
        bare = sum(
            _number(db, f"SELECT count(*) FROM {name}.{index} WHERE {index} MATCH ?", [f'"{token}"'])
            for token in tokens
        )
        joined = sum(getattr(comparison, f"{name}_rows") for comparison in comparisons)
        if bare != joined:
            return TableComparison(index, problem=f"{name}: {bare} matches of {query}, of which {joined} have a row")
    return TableComparison(
        index,
        sum(comparison.source_rows for comparison in comparisons),
        sum(comparison.target_rows for comparison in comparisons),
        sum(comparison.only_source for comparison in comparisons),
        sum(comparison.only_target for comparison in comparisons),
    )


def _tokens(db: sqlite3.Connection, table: str, column: str) -> list[str]:
    """A few plain words of the source's own first texts: the commonest and the longest."""
    texts = db.execute(f"SELECT {column} FROM source.{table} WHERE typeof({column}) = 'text' LIMIT 200").fetchall()
    words = Counter(word for (text,) in texts for word in text.split() if word.isascii() and word.isalpha())
    common = sorted(words, key=lambda word: (-words[word], word))[:_TOKENS_ASKED]
    rare = sorted(words, key=lambda word: (-len(word), word))[:_TOKENS_ASKED]
    return list(dict.fromkeys(common + rare))


def compare(source: Path, target: Path) -> list[TableComparison]:
    """Compares the 13 shipped tables, chunk bodies too, cell by cell, and then both full-text tables.

    Neither database is written to. Raises FileNotFoundError, or sqlite3.Error for what is no database.
    """
    with _both(source, target) as db:
        found = []
        for table in TABLES:
            try:
                found.append(_compare_table(db, table))
            except sqlite3.OperationalError as error:
                found.append(TableComparison(table, problem=str(error)))
        for table, column in (("chunks", "content"), ("documents", "title")):
            try:
                found.append(_compare_search(db, table, _tokens(db, table, column)))
            except sqlite3.OperationalError as error:
                found.append(TableComparison(f"{table}_fts", problem=str(error)))
    return found


def _line(item: TableComparison) -> str:
    verdict = "equal" if item.equal else item.problem or "DIFFERENT"
    counts = (item.source_rows, item.target_rows, item.only_source, item.only_target)
    return f"{item.table:<20}" + "".join(f"{count:>13,}" for count in counts) + f"  {verdict}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command: 0 if equal, 1 if not or if a database cannot be read."""
    options = argparse.ArgumentParser(
        prog="python -m examples.compare", description="Compare a hydrated database with its source."
    )
    options.add_argument("source", type=Path)
    options.add_argument("target", type=Path)
    given = options.parse_args(arguments)
    try:
        found = compare(given.source, given.target)
    except (OSError, sqlite3.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{'table':<20}" + "".join(f"{head:>13}" for head in ("source", "target", "source only", "target only")))
    for item in found:
        print(_line(item))
    return 0 if all(item.equal for item in found) else 1


if __name__ == "__main__":
    sys.exit(main())
