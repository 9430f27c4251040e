"""Which files make a corpus, and in what order they are taken."""

from __future__ import annotations

import os
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from examples.corpus.model import CorpusError, SourceFile

MIMES = {
    ".py": "text/x-python",
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".html": "text/html",
    ".htm": "text/html",
}
_NEVER = {"__pycache__", "site-packages", "node_modules"}


def _walk(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise CorpusError(f"cannot read the folder {folder}: {error.strerror}") from error

    # os.walk and not rglob: whole subtrees are left out, and a standard library is mostly such subtrees.
    for here, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if name not in _NEVER and not name.startswith("."))
        yield from (Path(here, name) for name in names)


def folder_files(folder: Path, name: str | None = None) -> list[SourceFile]:
    """The .py, .md, .txt and .html files under ``folder``, in uri order; the uri is ``name:relative/path``.

    ``name`` is the folder's own name unless given. Raises CorpusError if there is no such folder or no such file.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise CorpusError(f"no such folder: {folder}")
    scheme = (name or folder.name or "root").translate({ord(":"): "-", ord("/"): "-"})
    files = [
        SourceFile(f"{scheme}:{path.relative_to(folder).as_posix()}", path)
        for path in _walk(folder)
        if path.suffix.lower() in MIMES and path.is_file()
    ]
    if not files:
        raise CorpusError(f"no {', '.join(MIMES)} file under {folder}")
    return sorted(files, key=lambda file: file.uri)


def stdlib_files(name: str = "stdlib") -> list[SourceFile]:
    """The running interpreter's standard library, its tests included where they are installed, in uri order."""
    return folder_files(Path(sysconfig.get_path("stdlib")), name)


def in_breadth(files: Iterable[SourceFile]) -> list[SourceFile]:
    """The files so ordered that any first part of them holds something of every top-level folder.

    In plain uri order a first part of the standard library would never reach what stands late in the alphabet.
    """
    groups: dict[str, list[SourceFile]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.uri):
        groups[file.relative.partition("/")[0]].append(file)
    ranked = [(rank, file.uri, file) for group in groups.values() for rank, file in enumerate(group)]
    return [file for _, _, file in sorted(ranked, key=lambda item: item[:2])]
