"""What every shard must know of the whole corpus: where a uri or a module is, and what a folder contains."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from examples.corpus.model import Document, Link
from examples.corpus.python_text import module_name

Edge = tuple[str, str, str | None, str | None, str | None]
"""(src_root, edge_type, dst_root, dst_uri, anchor), as in the table."""

_HEADS = ("__init__.py", "index.html", "index.htm", "README.md", "index.md", "README.txt")


@dataclass
class Index:
    """``roots`` maps a uri or ``module:name`` to a document root; ``contained`` a folder's head to what it holds."""

    roots: dict[str, str] = field(default_factory=dict)
    contained: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # root -> (dst_root, name)

    def edge(self, src_root: str, link: Link) -> Edge:
        """The link with its target looked up: dst_root is None for what is not in the corpus."""
        target = link.target
        if target is not None and target not in self.roots and link.parent is not None:
            target = link.parent
        return src_root, link.edge_type, self.roots.get(target or ""), target, link.anchor


def module_alias(uri: str) -> str | None:
    """``module:json.decoder`` for the uri of a Python module."""
    name = module_name(uri.partition(":")[2])
    return f"module:{name}" if name else None


def _split(uri: str) -> tuple[str, str]:
    """The uri of the folder and the name in it: ``s:a/b`` is ``s:a`` and ``b``, ``s:a`` is ``s:`` and ``a``."""
    scheme, _, path = uri.partition(":")
    folder, name = posixpath.split(path)
    return f"{scheme}:{folder}", name


def build_index(documents: Iterable[Document]) -> Index:
    """The index over all documents read, those of equal content too: each uri counts."""
    index = Index()
    heads: dict[str, tuple[int, str]] = {}  # folder -> (rank of the head's name, the head's uri)
    uris = []
    for document in documents:
        uris.append(document.uri)
        index.roots[document.uri] = document.root
        if alias := module_alias(document.uri):
            index.roots.setdefault(alias, document.root)
        folder, name = _split(document.uri)
        if name in _HEADS:
            rank = (_HEADS.index(name), document.uri)
            heads[folder] = min(heads.get(folder, rank), rank)
    contained: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for uri in uris:
        folder, name = _split(uri)
        head = heads.get(folder)
        if head is not None and head[1] == uri:  # a folder's head is held by the head of the folder above
            folder, name = _split(folder)
            head = heads.get(folder)
        if head is not None and name:
            contained[index.roots[head[1]]].append((index.roots[uri], name))
    index.contained = dict(contained)
    return index
