"""The rows of a shard, table by table, from its documents; nothing in them comes from the clock, the host or chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from urllib.parse import quote

from examples.corpus import concepts
from examples.corpus.chunking import merkle_nodes
from examples.corpus.index import Edge, Index, module_alias
from examples.corpus.model import Document
from pack_lib.hashing import leaf_hash, tree_hash
from pack_lib.rules import GENESIS, event_hash
from pack_lib.values import canonical_json

Row = tuple[str | int | float | None, ...]

_FIRST_DAY = datetime(2020, 1, 1, tzinfo=UTC)
_YEARS = timedelta(days=5 * 365)
_ORPHANS, _SNAPSHOTS = 20, 4


@dataclass(frozen=True)
class ShardContent:
    """What one shard is made of: its documents in uri order, other uris of equal content, and the corpus's index."""

    documents: Sequence[Document]
    other_uris: dict[str, list[str]]  # root -> uris
    index: Index


def added_at(document: Document) -> datetime:
    """A moment that only the content decides: building twice, or elsewhere, gives equal rows."""
    return _FIRST_DAY + timedelta(seconds=int(document.root[:8], 16) % int(_YEARS.total_seconds()))


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _by_time(content: ShardContent) -> list[Document]:
    return sorted(content.documents, key=lambda document: (added_at(document), document.root))


def _json(value: object) -> str:
    return canonical_json(value).decode()


def document_rows(content: ShardContent) -> Iterator[Row]:
    """documents."""
    for document in content.documents:
        moment = _iso(added_at(document))
        yield document.root, document.uri, document.title, document.mime, len(document.chunks), moment


def chunk_rows(content: ShardContent) -> Iterator[Row]:
    """chunks, and after them the few of no document: a note on some documents, and one chunk once more."""
    for document in content.documents:
        for ordinal, (chunk, leaf) in enumerate(zip(document.chunks, document.leaves, strict=True)):
            yield document.root, ordinal, leaf.hex(), len(chunk.encode()), chunk
    noted = [document for document in content.documents if document.facts.summary][:_ORPHANS]
    orphans = [f"Note on {document.uri}: {document.facts.summary}\n" for document in noted]
    # What remains of a replaced document is a body that others still share.
    orphans += [document.chunks[-1] for document in content.documents if document.chunks][:1]
    for ordinal, text in enumerate(orphans):
        body = text.encode()
        yield None, ordinal, leaf_hash(body).hex(), len(body), text


def merkle_rows(content: ShardContent) -> Iterator[Row]:
    """merkle_nodes; a subtree that two documents share comes once."""
    seen: set[bytes] = set()
    for document in content.documents:
        for digest, left, right, level in merkle_nodes(document.leaves):
            if digest not in seen:
                seen.add(digest)
                yield digest.hex(), left.hex(), right.hex(), level


def edge_rows(content: ShardContent) -> Iterator[Edge]:
    """edges: a row for every time a document says so, hence equal rows."""
    for document in content.documents:
        for link in document.facts.links:
            yield content.index.edge(document.root, link)
        for dst_root, name in content.index.contained.get(document.root, ()):
            yield document.root, "contains", dst_root, None, name


def audit_rows(content: ShardContent) -> Iterator[Row]:
    """audit_events: the ingest of every document, in time order, each bound to the one before."""
    previous = GENESIS
    for seq, document in enumerate(_by_time(content), 1):
        payload = _json({"document_root": document.root, "n_chunks": len(document.chunks), "uri": document.uri})
        at = _iso(added_at(document))
        digest = event_hash(previous, seq, "ingest", payload, at)
        yield seq, "ingest", payload, previous, digest, at
        previous = digest


def derivation_rows(content: ShardContent) -> Iterator[Row]:
    """derivations: title and summary, each named by the root of the one-chunk text it would be."""
    for document in content.documents:
        origin = document.facts.title_from
        params = _json({"from": origin}) if origin else None
        yield leaf_hash(document.title.encode()).hex(), document.root, "title", params
        if summary := document.facts.summary:
            params = _json({"characters": len(summary), "paragraph": 1})
            yield leaf_hash(summary.encode()).hex(), document.root, "summary", params


def claim_rows(content: ShardContent) -> Iterator[Row]:
    """providence_cache; of a sentence that several documents begin with, the first counts."""
    seen: set[str] = set()
    for document in content.documents:
        for claim, verdict, score, evidence in concepts.claims([document]):
            if claim not in seen:
                seen.add(claim)
                yield claim, verdict, score, evidence, _iso(added_at(document))


def citation_rows(content: ShardContent) -> Iterator[Row]:
    """citation_aliases: other uris of the same content, the module's name, and a short form of the root."""
    seen: set[str] = set()
    for document in content.documents:
        others = content.other_uris.get(document.root, [])
        modules = [alias for uri in (document.uri, *others) if (alias := module_alias(uri))]
        # Two files may be one module (a.py and a/__init__.py): the index says which of them the name means.
        mine = [alias for alias in modules if content.index.roots.get(alias) == document.root]
        for alias in (*others, *mine, f"cite:{document.root[:16]}"):
            if alias not in seen:
                seen.add(alias)
                yield alias, document.root


def term_rows(content: ShardContent) -> Iterator[Row]:
    """term_aliases, each once, in order of appearance."""
    yield from dict.fromkeys(term for document in content.documents for term in document.facts.terms)


def snapshot_rows(content: ShardContent) -> Iterator[Row]:
    """snapshots: the shard as it was after each quarter of the documents."""
    ordered = _by_time(content)
    ends = sorted({len(ordered) * quarter // _SNAPSHOTS for quarter in range(1, _SNAPSHOTS + 1)})
    for seq, end in enumerate(ends, 1):
        held = ordered[:end]
        root = tree_hash(bytes.fromhex(name) for name in sorted(document.root for document in held))
        moment = added_at(held[-1]) if held else _FIRST_DAY
        yield seq, root.hex(), len(held), sum(len(document.chunks) for document in held), _iso(moment)


def http_rows(content: ShardContent) -> Iterator[Row]:
    """document_http_meta: what a server of these files would have answered; 404, and no more, for an empty one."""
    for document in content.documents:
        scheme, _, path = document.uri.partition(":")
        url = f"https://corpus.example/{quote(scheme)}/{quote(path)}"
        if not document.chunks:
            yield document.root, url, 404, None, None, None
            continue
        length = sum(len(chunk.encode()) for chunk in document.chunks)
        headers = {"content-length": str(length), "content-type": f"{document.mime}; charset=utf-8"}
        modified = format_datetime(added_at(document), usegmt=True)
        yield document.root, url, 200, f'"{document.sha256[:32]}"', modified, _json(headers)


def all_rows(content: ShardContent) -> Iterator[tuple[str, Iterator[Row] | list[Row]]]:
    """Every shipped table with its rows, cells in the order of the schema's columns."""
    idf = concepts.token_idf(content.documents)
    yield "documents", document_rows(content)
    yield "chunks", chunk_rows(content)
    yield "merkle_nodes", merkle_rows(content)
    yield "edges", edge_rows(content)
    yield "audit_events", audit_rows(content)
    yield "derivations", derivation_rows(content)
    yield "concept_relations", list(concepts.relations(content.documents, idf))
    yield "concept_token_idf", list(idf)
    yield "providence_cache", claim_rows(content)
    yield "citation_aliases", citation_rows(content)
    yield "term_aliases", term_rows(content)
    yield "snapshots", snapshot_rows(content)
    yield "document_http_meta", http_rows(content)
