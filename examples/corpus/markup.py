"""What HTML, Markdown and plain text say of themselves: title, first paragraph, links, acronyms."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from examples.corpus.model import Facts, Link

_URL = re.compile(r"https?://[^\s<>\"'`(){}\[\]|\\]+")
_MARKDOWN_LINK = re.compile(r"\[([^\[\]]*)\]\(\s*<?([^\s()<>]+)>?[^()]*\)|<(https?://[^\s<>]+)>")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$|^(\S.*)\n(?:=+|-{3,})[ \t]*$", re.MULTILINE)
_ACRONYM = re.compile(r"\(([A-Z]{2,6})s?\)")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


def _collapsed(text: str, most: int = 600) -> str | None:
    return " ".join(text.split())[:most] or None


def first_paragraph(text: str) -> str | None:
    """The text up to its first blank line, in one line of at most 600 characters."""
    return _collapsed(re.split(r"\n[ \t\r]*\n", text.strip(), maxsplit=1)[0])


def urls(text: str) -> list[Link]:
    """A link for every URL in running text, each time it stands there."""
    return [Link("links", match[0].rstrip(".,;:!?*")) for match in _URL.finditer(text)]


def acronyms(text: str) -> Iterator[tuple[str, str]]:
    """(``API``, ``application programming interface``) for every acronym spelt out just before its brackets."""
    for match in _ACRONYM.finditer(text):
        short = match[1]
        words = re.findall(r"[A-Za-z]+", text[max(0, match.start() - 120) : match.start()])[-len(short) :]
        if "".join(word[0] for word in words).upper() == short:
            yield short, " ".join(words)


def resolve(uri: str, href: str) -> str:
    """The uri a reference in the document ``uri`` means, without its fragment; one with a scheme stays as it is."""
    href = href.strip()
    if _SCHEME.match(href) or href.startswith("//"):
        return href
    try:
        path = unquote(urlsplit(href).path)
    except ValueError:
        return href
    if not path:
        return uri
    scheme, _, here = uri.partition(":")
    joined = path.lstrip("/") if path.startswith("/") else posixpath.join(posixpath.dirname(here), path)
    return f"{scheme}:{posixpath.normpath(joined) if joined else ''}"


class _Page(HTMLParser):
    """Collects the title, the first heading, the first paragraph with words, and the references with their text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: dict[str, str] = {}
        self.references: list[tuple[str, str | None]] = []
        self._open: dict[str, list[str]] = {}
        self._href: str | None = None

    def _close(self, tag: str) -> None:
        text = _collapsed("".join(self._open.pop(tag, ())))
        if tag == "a":
            if self._href is not None:
                self.references.append((self._href, text))
                self._href = None
        elif text:
            self.found.setdefault(tag, text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._close("a")  # an unclosed one ends where the next begins
            self._href = dict(attrs).get("href")
            self._open["a"] = []
        elif tag in ("title", "h1", "p") and tag not in self.found:
            self._close(tag)
            self._open[tag] = []

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            self._close(tag)

    def handle_data(self, data: str) -> None:
        for parts in self._open.values():
            parts.append(data)

    def close(self) -> None:
        super().close()
        for tag in list(self._open):
            self._close(tag)


def html_facts(text: str, uri: str) -> Facts:
    """Title, first paragraph and links of a page, however broken."""
    page = _Page()
    page.feed(text)
    page.close()
    tag = "title" if "title" in page.found else "h1" if "h1" in page.found else None
    return Facts(
        page.found[tag] if tag else None,
        tag,
        page.found.get("p"),
        tuple(Link("links", resolve(uri, href), anchor) for href, anchor in page.references),
        tuple(acronyms(text)),
    )


def _heading(text: str) -> tuple[str, int] | None:
    match = _HEADING.search(text)
    return ((match[1] or match[2]).strip(), match.end()) if match else None


def markdown_facts(text: str, uri: str) -> Facts:
    """The first heading, the paragraph after it, and the links."""
    heading = _heading(text)
    links = [
        Link("links", match[3]) if match[3] else Link("links", resolve(uri, match[2]), _collapsed(match[1]))
        for match in _MARKDOWN_LINK.finditer(text)
    ]
    return Facts(
        heading[0] if heading else None,
        "heading" if heading else None,
        first_paragraph(text[heading[1] if heading else 0 :]),
        tuple(links),
        tuple(acronyms(text)),
    )


def plain_facts(text: str) -> Facts:
    """A first line that is underlined is the title."""
    start = text.lstrip("\ufeff \t\r\n")
    match = re.match(r"(\S.*)\r?\n(?:=+|-{3,}|~+|\*+)[ \t]*\r?\n", start)
    title = match[1].strip()[:200] if match else None
    return Facts(
        title,
        "heading" if title else None,
        first_paragraph(start[match.end() if match else 0 :]),
        tuple(urls(text)),
        tuple(acronyms(text)),
    )
