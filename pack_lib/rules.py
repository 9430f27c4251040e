"""The corpus's own arithmetic: what a document root, a Merkle node and an audit event's hash are made of.

Verification recomputes them from shipped rows; `docs/format.md`, "Corpus rules", is the normative text.
"""

from __future__ import annotations

import hashlib

from pack_lib.values import Cell, encode_row

GENESIS = "0" * 64
"""``prev_hash`` of the first audit event of a chain."""


def event_hash(prev_hash: Cell, seq: Cell, event_type: Cell, payload: Cell, at: Cell) -> str:
    """SHA-256, in hex, over the canonical row ``[prev_hash,seq,event_type,payload,at]`` (UTF-8, without line feed)."""
    return hashlib.sha256(encode_row((prev_hash, seq, event_type, payload, at)).encode()).hexdigest()
