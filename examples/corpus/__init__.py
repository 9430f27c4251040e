"""Builds a corpus of real text, from a folder or the standard library: shards with every table of the profile."""

from examples.corpus.build import build_corpus, read_documents, write_corpus
from examples.corpus.files import folder_files, in_breadth, stdlib_files
from examples.corpus.model import CorpusError, Document, ShardSummary, Skipped, SourceFile

__all__ = [
    "CorpusError",
    "Document",
    "ShardSummary",
    "Skipped",
    "SourceFile",
    "build_corpus",
    "folder_files",
    "in_breadth",
    "read_documents",
    "stdlib_files",
    "write_corpus",
]
