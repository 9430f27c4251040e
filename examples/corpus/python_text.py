"""What a Python file says of itself: its docstring, what it imports and what it mentions of that."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator

from examples.corpus.markup import first_paragraph, urls
from examples.corpus.model import Facts, Link

_IMPORT_LINE = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+(\w[\w., \t]*))", re.MULTILINE)


def module_name(relative: str) -> str | None:
    """The dotted name of the module in a file, e.g. ``json.decoder``; None if the file is not a module."""
    if not relative.endswith(".py"):
        return None
    parts = relative[:-3].split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) if parts and all(part.isidentifier() for part in parts) else None


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, those in functions and branches too. Expressions hold no import, and are most of a tree."""
    todo = list(body)[::-1]
    while todo:
        node = todo.pop()
        yield node
        inner: list[ast.AST] = []
        for field in ("body", "handlers", "cases", "orelse", "finalbody"):
            inner += getattr(node, field, ())
        todo += reversed(inner)


def _package(relative: str, level: int) -> str | None:
    """The package that ``level`` dots mean in that file, '' at the top; None if they leave the corpus."""
    parts = relative.split("/")
    return ".".join(parts[:-level]) if level <= len(parts) else None


def _from(node: ast.ImportFrom, relative: str) -> Iterator[tuple[Link, str]]:
    base = node.module or ""
    if node.level:
        package = _package(relative, node.level)
        if package is None:
            for name in node.names:
                yield Link("imports", None, name.asname), name.name
            return
        base = ".".join(part for part in (package, base) if part)
    for name in node.names:
        dotted = ".".join(part for part in (base, name.name) if part)
        parent = f"module:{base}" if base else None
        target = parent if name.name == "*" else f"module:{dotted}"
        yield Link("imports", target, name.asname, parent), dotted


def _mentions(text: str, modules: dict[str, str]) -> Iterator[Link]:
    """``os.getcwd`` in a file that imports os, each time it stands there, comments and strings included."""
    if not modules:
        return
    names = "|".join(sorted(map(re.escape, modules), key=lambda name: (-len(name), name)))
    for match in re.finditer(rf"(?<![\w.])({names})\.([A-Za-z_]\w*)", text):
        module, name = modules[match[1]], match[2]
        yield Link("mentions", f"module:{module}.{name}", name, f"module:{module}")


def _without_tree(text: str) -> Facts:
    """The same by regular expressions, for a file that this interpreter cannot parse."""
    links = []
    for match in _IMPORT_LINE.finditer(text):
        for name in [match[1]] if match[1] else match[2].split(","):
            words = name.split()
            if words and words[0].strip("."):
                links.append(Link("imports", f"module:{words[0].strip('.')}", words[2] if len(words) == 3 else None))
    return Facts(links=(*links, *urls(text)))


def python_facts(text: str, relative: str) -> Facts:
    """Title and summary from the module's docstring; imports, mentions and URLs as links; ``as`` names as terms."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file's invalid escapes are not ours to report
            tree = ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _without_tree(text)
    links: list[Link] = []
    terms: list[tuple[str, str]] = []
    modules: dict[str, str] = {}
    for node in _statements(tree.body):
        if isinstance(node, ast.Import):
            for name in node.names:
                links.append(Link("imports", f"module:{name.name}", name.asname))
                if name.asname:
                    modules[name.asname] = name.name
                    terms.append((name.asname, name.name))
                else:  # `import a.b` binds a
                    package = name.name.partition(".")[0]
                    modules[package] = package
        elif isinstance(node, ast.ImportFrom):
            for (link, dotted), name in zip(_from(node, relative), node.names, strict=True):
                links.append(link)
                if name.asname:
                    terms.append((name.asname, dotted))
    links += _mentions(text, modules)
    links += urls(text)
    doc = (ast.get_docstring(tree) or "").strip()
    title = doc.partition("\n")[0].strip()
    return Facts(
        title or None,
        "docstring" if title else None,
        first_paragraph(doc),
        tuple(links),
        tuple(terms),
    )
