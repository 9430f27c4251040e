"""The small tables that are computed from a shard's words: token weights, co-occurrence, claims and their evidence."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from examples.corpus.model import Document

_TOKEN = re.compile(r"[a-z][a-z0-9_]{2,30}")
_TOKENS_KEPT, _PAIRS_KEPT, _CHUNKS_SEARCHED = 4000, 2000, 12

TokenIdf = tuple[str, float, int]


def tokens(text: str) -> set[str]:
    """The distinct lower-case words of a text."""
    return set(_TOKEN.findall(text.lower()))


def token_idf(documents: Sequence[Document]) -> list[TokenIdf]:
    """(token, log(N / n_documents), n_documents) of the commonest tokens, commonest first."""
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(tokens("".join(document.chunks)))
    kept = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_TOKENS_KEPT]
    return [(token, math.log(len(documents) / n), n) for token, n in kept]


def relations(documents: Iterable[Document], idf: Iterable[TokenIdf]) -> list[tuple[str, str, str, float]]:
    """(concept, 'co-occurs', other, Jaccard index) of tokens that share titles and first paragraphs."""
    # Below 1.0 a token stands in over a third of the documents: a common word, no concept.
    vocabulary = {token for token, weight, _ in idf if weight >= 1.0}
    alone: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for document in documents:
        words = sorted(tokens(f"{document.title} {document.facts.summary or ''}") & vocabulary)
        alone.update(words)
        pairs.update(combinations(words, 2))
    kept = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:_PAIRS_KEPT]
    return [(a, "co-occurs", b, both / (alone[a] + alone[b] - both)) for (a, b), both in kept]


def first_sentence(text: str) -> str:
    """Up to the first full stop, question or exclamation mark that ends a word."""
    return re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]


def claims(documents: Iterable[Document]) -> Iterator[tuple[str, str, float, str | None]]:
    """(claim_hash, verdict, score, evidence) of each document's first sentence of three words or more.

    The evidence is the leaf hash of the chunk that holds most of the sentence's words; the score is that share.
    """
    for document in documents:
        sentence = first_sentence(document.facts.summary or "")
        words = tokens(sentence)
        if len(words) < 3:
            continue
        best, evidence = 0, None
        for chunk, leaf in zip(document.chunks[:_CHUNKS_SEARCHED], document.leaves, strict=False):
            held = len(words & tokens(chunk))
            if held > best:
                best, evidence = held, leaf.hex()
        score = best / len(words)
        verdict = "supported" if score == 1.0 else "partly supported"
        yield hashlib.sha256(sentence.encode()).hexdigest(), verdict, score, evidence
