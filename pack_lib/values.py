"""Cells: one canonical JSON form for every stored value, so that equal data gives equal bytes.

null, int64, float, text are JSON's own; what JSON lacks is tagged with lower-case hex: ``{"$b":"00ff"}`` a blob,
``{"$t":"c3"}`` text that is not UTF-8, ``{"$f":"inf"}`` a float that JSON cannot spell. Grammar: docs/format.md.
"""

from __future__ import annotations

import json
import json.encoder
import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from pack_lib.errors import Damaged


class RawText:
    """A text cell whose stored bytes are not valid UTF-8. Equal and ordered by its bytes, never equal to ``str``."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawText) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash((RawText, self.raw))

    def __repr__(self) -> str:
        return f"RawText({self.raw!r})"


Cell = None | int | float | str | bytes | RawText
Row = Sequence[Cell]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def shown(value: object, limit: int = 80) -> str:
    """A value from a source or a store as a message shows it: its repr, cut where it is long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def text_cell(raw: bytes) -> str | RawText:
    """A stored text's bytes as a cell: ``str`` if they are strict UTF-8, else :class:`RawText`."""
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        return RawText(raw)


def _tag(value: object) -> Any:
    if isinstance(value, bytes):
        return {"$b": value.hex()}
    if isinstance(value, RawText):
        return {"$t": value.raw.hex()}
    raise TypeError(f"no cell: {type(value).__name__}")


def _finite(value: object) -> object:
    """Floats that JSON cannot spell become their tag; lists are walked (a fanned-in array is one cell)."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$f": "nan" if value != value else "inf" if value > 0 else "-inf"}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _make_encoder() -> Callable[[object], str]:
    options: dict[str, Any] = {
        "ensure_ascii": False,
        "separators": (",", ":"),
        "allow_nan": False,
        "check_circular": False,
        "default": _tag,
    }
    plain = json.JSONEncoder(**options).encode
    make = getattr(json.encoder, "c_make_encoder", None)
    quote = getattr(json.encoder, "c_encode_basestring", None)
    if make is None or quote is None:
        return plain
    # JSONEncoder.encode builds its C encoder anew at every call, which doubles the cost of a row: build it once.
    fast = make(None, _tag, quote, None, ":", ",", False, False, False)

    def encode(row: object) -> str:
        return "".join(fast(row, 0))

    return encode


_encode = _make_encoder()


def encode_row(row: Sequence[object]) -> str:
    """One row as its canonical JSON array, without the line feed. Cells may be lists of cells (a fanned-in column).

    Raises ValueError or TypeError for what is no cell.
    """
    try:
        return _encode(row)
    except ValueError:  # an infinite or NaN float somewhere in it
        return _encode(_finite(row))


def _untag(pairs: list[tuple[str, Any]]) -> Cell:
    if len(pairs) == 1 and isinstance(pairs[0][1], str):
        tag, value = pairs[0]
        if tag == "$b":
            return bytes.fromhex(value)
        if tag == "$t":
            return RawText(bytes.fromhex(value))
        if tag == "$f" and value in ("inf", "-inf", "nan"):
            return float(value)
    raise ValueError("an object that is no tagged cell")


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) < 21 else INT64_MAX + 1
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{digits[:24]} is no 64-bit integer")
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:24]} is no finite float")
    return value


_decode = json.JSONDecoder(
    object_pairs_hook=_untag, parse_constant=_reject_constant, parse_int=_integer, parse_float=_float
).decode
_CELLS = {type(None), int, float, str, bytes, RawText}


def decode_lines(lines: list[str], width: int, where: str, *, array_last: bool = False) -> list[list[Any]]:
    """The rows of lines (without their LF), each of ``width`` cells; with ``array_last`` the last is a list of cells.

    Raises Damaged, naming ``where``, for a line that is anything else.
    """
    text = f"[{','.join(lines)}]"
    try:
        # One call of the parser for all lines: a call a line costs more than the parsing.
        rows = _decode(text)
        if len(rows) != len(lines) or set(map(type, rows)) - {list} or set(map(len, rows)) - {width}:
            raise ValueError(f"it is no array of {width} cells")
        arrays = [row[-1] for row in rows] if array_last else []
        if set(map(type, arrays)) - {list} or not all(arrays):
            raise ValueError("its last cell is no array of values")
        cells = chain.from_iterable([*(row[:-1] for row in rows), *arrays] if array_last else rows)
        if set(map(type, cells)) - _CELLS:
            raise ValueError("it holds something that is no cell")
        if "\\ud" in text or "\\uD" in text:
            _check_surrogates(rows)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{where}: a line is not a row ({error})") from None
    return rows  # type: ignore[no-any-return]


def _check_surrogates(value: Any) -> None:
    """JSON can spell half a surrogate pair, which no stored text is. Raises UnicodeEncodeError (a ValueError)."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, list):
        for item in value:
            _check_surrogates(item)


def canonical_json(value: object) -> bytes:
    """Canonical JSON of a document of ours: keys sorted, no spaces, UTF-8, no line feed. No floats stand in it."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
