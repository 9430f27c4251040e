"""The corpus builder, run on real files; its arithmetic is recomputed here with hashlib alone."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from examples.compare import TABLES
from examples.corpus import CorpusError, build_corpus, folder_files, in_breadth, read_documents, stdlib_files
from examples.corpus.__main__ import main
from examples.corpus.chunking import LEAST, MOST, cut, merkle_nodes
from examples.corpus.markup import resolve
from examples.corpus.python_text import module_name

LEAF, NODE, EMPTY = b"\x00", b"\x01", sha256(b"").hexdigest()


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        return db.execute(sql).fetchall()


def ordinary_tables(path: Path) -> list[str]:
    """The database's text form without the full-text tables' own pages."""
    with closing(sqlite3.connect(path)) as db:
        return [line for line in db.iterdump() if "_fts" not in line]


def tree(leaves: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, as it stands there."""
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"").digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return sha256(NODE + tree(leaves[:k]) + tree(leaves[k:])).digest()


def documents(path: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for (root,) in rows(path, "SELECT document_root FROM documents"):
        sql = f"SELECT leaf_hash, content FROM chunks WHERE document_root = '{root}' ORDER BY ordinal"
        yield root, rows(path, sql)


def root_of(path: Path, uri: str) -> str:
    found = rows(path, f"SELECT document_root FROM documents WHERE uri = '{uri}'")
    return str(found[0][0])


@pytest.mark.parametrize(
    "text",
    ["", "\n", "a", "a\r\nb\r\n", "x" * 5000, "\U0001f600" * 900 + "\n\n" + "y\n" * 900, "a\x0bb\x0cc\u2028d" * 400],
)
def test_chunks_joined_are_the_text(text: str) -> None:
    chunks = cut(text)
    assert "".join(chunks) == text
    assert all(0 < len(chunk.encode()) <= MOST for chunk in chunks)


def test_paragraphs_end_chunks() -> None:
    paragraph = "word " * 80 + "\n\n"
    assert cut(paragraph * 3) == [paragraph] * 3
    assert len(paragraph) >= LEAST


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 9, 33])
def test_merkle_nodes_end_in_the_root(count: int) -> None:
    leaves = [sha256(LEAF + bytes([n])).digest() for n in range(count)]
    nodes = merkle_nodes(leaves)
    assert len(nodes) == max(0, count - 1)
    if nodes:
        assert nodes[-1][0] == tree(leaves)
        assert nodes[-1][3] == math.ceil(math.log2(count))


def test_document_roots_recompute(shard: Path, stdlib_corpus: Path) -> None:
    for path in (shard, *stdlib_corpus.glob("shard-*.db")):
        for root, chunks in documents(path):
            leaves = [sha256(LEAF + content.encode()).digest() for _, content in chunks]
            assert [leaf.hex() for leaf in leaves] == [leaf for leaf, _ in chunks]
            assert tree(leaves).hex() == root
    sql = "SELECT count(*) FROM chunks WHERE n_bytes <> length(CAST(content AS BLOB))"
    assert rows(shard, sql) == [(0,)]


def test_merkle_nodes_recompute(stdlib_corpus: Path) -> None:
    for path in stdlib_corpus.glob("shard-*.db"):
        levels = {leaf: 0 for (leaf,) in rows(path, "SELECT leaf_hash FROM chunks")}
        nodes = rows(path, "SELECT node_hash, left_hash, right_hash, level FROM merkle_nodes ORDER BY level")
        for digest, left, right, level in nodes:
            assert sha256(NODE + bytes.fromhex(left) + bytes.fromhex(right)).hexdigest() == digest
            assert level == 1 + max(levels[left], levels[right])
            levels[digest] = level
        sql = "SELECT document_root FROM documents WHERE n_chunks > 1"
        assert {root for (root,) in rows(path, sql)} <= {node[0] for node in nodes}


def test_audit_chain_recomputes(shard: Path) -> None:
    events = rows(shard, "SELECT seq, event_type, payload, prev_hash, event_hash, at FROM audit_events ORDER BY seq")
    previous, last = "0" * 64, ""
    for number, (seq, kind, payload, prev_hash, event_hash, at) in enumerate(events, 1):
        assert (seq, prev_hash) == (number, previous)
        text = json.dumps([prev_hash, seq, kind, payload, at], ensure_ascii=False, separators=(",", ":"))
        assert sha256(text.encode()).hexdigest() == event_hash
        assert at >= last
        previous, last = event_hash, at
    told = {json.loads(event[2])["document_root"] for event in events}
    assert told == {root for (root,) in rows(shard, "SELECT document_root FROM documents")}


def test_last_snapshot_is_the_tree_over_all_documents(shard: Path) -> None:
    roots = [bytes.fromhex(root) for (root,) in rows(shard, "SELECT document_root FROM documents ORDER BY 1")]
    last = rows(shard, "SELECT snapshot_root, n_documents FROM snapshots ORDER BY seq DESC LIMIT 1")
    assert last == [(tree(roots).hex(), len(roots))]


def test_every_shipped_table_has_rows_in_every_shard(stdlib_corpus: Path) -> None:
    shards = sorted(stdlib_corpus.iterdir())
    assert [path.name for path in shards] == [f"shard-{n}.db" for n in range(4)]
    for number, path in enumerate(shards):
        for table in (*TABLES, "meta", "mesh_peers"):
            assert rows(path, f"SELECT count(*) FROM {table}")[0][0] > 0, f"{path.name}: {table}"
        for (root,) in rows(path, "SELECT document_root FROM documents"):
            assert int(root[:8], 16) * 4 >> 32 == number


def test_search_answers(stdlib_corpus: Path) -> None:
    for path in stdlib_corpus.iterdir():
        found = rows(path, "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH 'import'")[0][0]
        assert found > 10
        assert rows(path, "SELECT count(*) FROM documents_fts WHERE documents_fts MATCH 'python'")[0][0] > 0


def test_edges_have_nulls_and_repeat(shard: Path, stdlib_corpus: Path) -> None:
    repeated = "SELECT 1 FROM edges GROUP BY src_root, edge_type, dst_root, dst_uri, anchor HAVING count(*) > 1"
    for column in ("dst_root", "dst_uri", "anchor"):
        assert rows(shard, f"SELECT 1 FROM edges WHERE {column} IS NULL")
    for path in (shard, *stdlib_corpus.iterdir()):
        assert rows(path, "SELECT 1 FROM edges WHERE dst_root IS NULL AND dst_uri IS NOT NULL AND anchor IS NULL")
        assert rows(path, repeated)


def test_python_edges(shard: Path) -> None:
    a, b = root_of(shard, "texts:pkg/a.py"), root_of(shard, "texts:copy/b.py")
    sql = f"SELECT edge_type, dst_root, dst_uri, anchor FROM edges WHERE src_root = '{a}'"
    assert rows(shard, sql) == [
        ("imports", None, "module:os", None),
        ("imports", None, "module:os", None),
        ("imports", None, "module:os.path", "op"),
        ("imports", b, "module:pkg.b", None),
        ("imports", b, "module:pkg.b", "renamed"),
        ("imports", None, None, None),
        ("imports", None, "module:json", None),
        ("mentions", None, "module:os", "path"),
        ("mentions", None, "module:os", "getcwd"),
        ("mentions", None, "module:json", "dumps"),
        ("mentions", None, "module:os", "getcwd"),
    ]
    broken = root_of(shard, "texts:pkg/broken.py")
    assert rows(shard, f"SELECT dst_uri, anchor FROM edges WHERE src_root = '{broken}'") == [
        ("module:sys", None),
        ("module:re", "r"),
        ("module:pkg", None),
    ]
    assert ("op", "os.path") in rows(shard, "SELECT * FROM term_aliases")
    held = rows(shard, f"SELECT anchor, dst_root FROM edges WHERE edge_type = 'contains' AND src_root = '{EMPTY}'")
    assert set(held) == {("a.py", a), ("b.py", b), ("broken.py", broken), ("empty.txt", EMPTY)}


def test_folders_contain(tmp_path: Path) -> None:
    for name in ("index.html", "a.txt", "sub/README.md", "sub/b.txt", "none/c.txt"):
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / name).write_text(name)
    path = build_corpus(folder_files(tmp_path / "f", "a:b"), tmp_path / "out", 1)[0].path
    sql = (
        "SELECT s.uri, d.uri, e.anchor FROM edges AS e JOIN documents AS s ON s.document_root = src_root"
        " JOIN documents AS d ON d.document_root = dst_root WHERE edge_type = 'contains' ORDER BY 1, 2"
    )
    assert rows(path, sql) == [
        ("a-b:index.html", "a-b:a.txt", "a.txt"),
        ("a-b:index.html", "a-b:sub/README.md", "sub"),
        ("a-b:sub/README.md", "a-b:sub/b.txt", "b.txt"),
    ]


def test_hyperlinks(shard: Path) -> None:
    guide, page = root_of(shard, "texts:guide.md"), root_of(shard, "texts:site/index.html")
    other = root_of(shard, "texts:site/deep/other.html")
    links = "SELECT dst_root, dst_uri, anchor FROM edges WHERE edge_type = 'links' AND src_root = "
    assert rows(shard, f"{links}'{guide}'") == [
        (page, "texts:site/index.html", "the page"),
        (page, "texts:site/index.html", "the page"),
        (None, "texts:gone.md", "nothing"),
        (None, "https://api.example/v1", None),
    ]
    assert rows(shard, f"{links}'{page}'") == [
        (guide, "texts:guide.md", "guide"),
        (other, "texts:site/deep/other.html", None),
        (page, "texts:site/index.html", "here"),
        (None, "mailto:a@b.example", "mailunclosed"),
    ]
    assert ("API", "application programming interface") in rows(shard, "SELECT * FROM term_aliases")


def test_titles(shard: Path) -> None:
    titles = dict(rows(shard, "SELECT uri, title FROM documents"))
    assert titles["texts:pkg/a.py"] == "Adds numbers and prints them."
    assert titles["texts:bom.py"] == "With a byte order mark."
    assert titles["texts:pkg/broken.py"] == "broken.py"
    assert titles["texts:guide.md"] == "The guide"
    assert titles["texts:site/index.html"] == "A & B"
    assert titles["texts:site/deep/other.html"] == "Other"
    assert titles["texts:notes.txt"] == "Notes"
    assert titles["texts:nul.txt"] == "nul.txt"


def test_equal_content_is_one_document(shard: Path) -> None:
    kept = dict(rows(shard, "SELECT uri, document_root FROM documents"))
    aliases = dict(rows(shard, "SELECT alias, document_root FROM citation_aliases"))
    assert "texts:copy/b.py" in kept and "texts:pkg/b.py" not in kept
    assert aliases["texts:pkg/b.py"] == aliases["module:pkg.b"] == kept["texts:copy/b.py"]
    assert kept["texts:pkg/__init__.py"] == aliases["texts:pkg/empty.txt"] == EMPTY
    assert rows(shard, f"SELECT n_chunks FROM documents WHERE document_root = '{EMPTY}'") == [(0,)]
    assert rows(shard, "SELECT status, etag FROM document_http_meta WHERE status <> 200") == [(404, None)]


def test_chunks_repeat_and_some_are_of_no_document(shard: Path) -> None:
    shared = "SELECT leaf_hash FROM chunks GROUP BY 1 HAVING count(DISTINCT document_root) > 1"
    assert rows(shard, shared)
    orphans = rows(shard, "SELECT ordinal, leaf_hash, content FROM chunks WHERE document_root IS NULL ORDER BY 1")
    assert [ordinal for ordinal, _, _ in orphans] == list(range(len(orphans)))
    assert len(orphans) > 3
    assert all(sha256(LEAF + content.encode()).hexdigest() == leaf for _, leaf, content in orphans)


def test_token_weights(shard: Path) -> None:
    total = rows(shard, "SELECT count(*) FROM documents")[0][0]
    for token, idf, n, kind in rows(shard, "SELECT token, idf, n_documents, typeof(idf) FROM concept_token_idf"):
        assert kind == "real", token
        assert idf == math.log(total / n)


def test_building_twice_gives_equal_tables(folder: Path, tmp_path: Path) -> None:
    files = folder_files(folder)
    moved = folder.rename(tmp_path / "elsewhere")
    first = build_corpus(folder_files(moved, "texts"), tmp_path / "1", 3)
    moved.rename(folder)
    second = build_corpus(reversed(files), tmp_path / "2", 3)
    for one, two in zip(first, second, strict=True):
        assert one.rows == two.rows
        assert ordinary_tables(one.path) == ordinary_tables(two.path)


def test_no_machine_path_is_in_the_corpus(shard: Path, tmp_path: Path) -> None:
    assert str(tmp_path).encode() not in shard.read_bytes()


def test_skipped_files_are_named(folder: Path) -> None:
    (folder / "gone.txt").write_text("x")
    files = folder_files(folder)
    (folder / "gone.txt").unlink()
    found, skipped = read_documents(files)
    assert {(item.uri, item.reason) for item in skipped} == {
        ("texts:latin.py", "not UTF-8"),
        ("texts:gone.txt", "No such file or directory"),
    }
    assert len(found) + len(skipped) == len(files)


def test_stops_at_a_document_boundary() -> None:
    files = in_breadth(stdlib_files())
    found, _ = read_documents(files, chunks_at_most=300)
    assert 100 < sum(len(document.chunks) for document in found) <= 300
    assert len({file.relative.partition("/")[0] for file in files[:100]}) == 100


def test_refuses_to_overwrite(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    build_corpus(folder_files(folder), out, 3)
    before = (out / "shard-0.db").read_bytes()
    with pytest.raises(CorpusError, match=r"shard-0\.db exists already"):
        build_corpus(folder_files(folder), out, 3)
    assert (out / "shard-0.db").read_bytes() == before
    build_corpus(folder_files(folder), out, 2, force=True)
    assert sorted(path.name for path in out.iterdir()) == ["shard-0.db", "shard-1.db"]


def test_failure_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "shard-1.db.tmp").mkdir(parents=True)  # cannot be replaced by a file
    with pytest.raises(CorpusError, match="cannot write"):
        build_corpus(folder_files(folder), out, 2)
    assert [path.name for path in out.iterdir()] == ["shard-1.db.tmp"]


def test_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(folder), str(tmp_path / "out"), "--shards", "2"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "shard-1" in told and "skipped 1 file: not UTF-8" in told
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert main([*arguments, "--force"]) == 0
    assert main([str(folder / "none"), str(tmp_path / "other")]) == 1
    assert main([str(folder / "copy"), str(folder / "guide.md")]) == 1


def test_command_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.corpus", "--stdlib", str(tmp_path / "out"), "--limit", "40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "shard-3.db").exists()


@pytest.mark.parametrize(
    ("href", "uri"),
    [
        ("b.html", "s:a/b.html"),
        ("../x%20y.html#f", "s:x y.html"),
        ("/top.html", "s:top.html"),
        ("#f", "s:a/page.html"),
        ("http://h/x", "http://h/x"),
        ("//h/x", "//h/x"),
        ("../../out.html", "s:../out.html"),
    ],
)
def test_resolve(href: str, uri: str) -> None:
    assert resolve("s:a/page.html", href) == uri


@pytest.mark.parametrize(
    ("path", "name"),
    [("a/b.py", "a.b"), ("a/__init__.py", "a"), ("__init__.py", None), ("a-b.py", None), ("a.txt", None)],
)
def test_module_name(path: str, name: str | None) -> None:
    assert module_name(path) == name
