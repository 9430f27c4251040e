"""Reads one file into a document."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

from examples.corpus.chunking import cut
from examples.corpus.files import MIMES
from examples.corpus.markup import html_facts, markdown_facts, plain_facts
from examples.corpus.model import Document, Facts, Skipped, SourceFile
from examples.corpus.python_text import python_facts
from pack_lib.hashing import leaf_hash, tree_hash


def _facts(file: SourceFile, mime: str, text: str) -> Facts:
    if mime == "text/x-python":
        return python_facts(text, file.relative)
    if mime == "text/html":
        return html_facts(text, file.uri)
    if mime == "text/markdown":
        return markdown_facts(text, file.uri)
    return plain_facts(text)


def read_document(file: SourceFile) -> Document | Skipped:
    """The file as a document; Skipped if it cannot be read or is not UTF-8. Line ends stay as they are."""
    try:
        file.uri.encode()
    except UnicodeEncodeError:
        return Skipped(ascii(file.uri), "its name is not UTF-8")
    try:
        raw = file.path.read_bytes()
        text = raw.decode()
    except OSError as error:
        return Skipped(file.uri, error.strerror or "cannot be read")
    except UnicodeDecodeError:
        return Skipped(file.uri, "not UTF-8")
    mime = MIMES.get(PurePosixPath(file.relative).suffix.lower(), "text/plain")
    chunks = tuple(cut(text))
    leaves = tuple(leaf_hash(chunk.encode()) for chunk in chunks)
    return Document(
        uri=file.uri,
        mime=mime,
        root=tree_hash(leaves).hex(),
        sha256=hashlib.sha256(raw).hexdigest(),
        chunks=chunks,
        leaves=leaves,
        facts=_facts(file, mime, text),
    )
