"""Build parameters as people give them: a cap in words or bytes, a level."""

from __future__ import annotations

import re
from decimal import Decimal

from pack_lib.errors import BadInput, CapTooSmall
from pack_lib.pack.format import (
    BD_CAP,
    DEFAULT_CAP,
    DEFAULT_LAYOUT,
    DEFAULT_LEVEL,
    LAYOUTS,
    MIN_CAP,
    Parameters,
    frame_size_for,
    part_size_for,
)
from pack_lib.pack.frames import LIBZSTD, check_level

_NAMED = {"dvd": DEFAULT_CAP, "bd": BD_CAP, "none": None}
_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(kB|MB|GB|KiB|MiB|GiB)?\Z")


def parse_cap(text: str) -> int | None:
    """Bytes of a cap, None for no cap: ``dvd``, ``bd``, ``none`` or a number, also with a unit. Raises BadInput."""
    if text in _NAMED:
        return _NAMED[text]
    match = _SIZE.match(text)
    size = Decimal(match[1]) * _UNITS[match[2] or ""] if match else Decimal(0)
    if size < 1 or size != int(size):
        raise BadInput(f"{text!r} is no number of bytes; give one like 650000000, 650MB or 4GiB, or dvd, bd or none")
    return int(size)


def parameters_for(
    cap: int | None = DEFAULT_CAP, level: int = DEFAULT_LEVEL, layout: int = DEFAULT_LAYOUT
) -> Parameters:
    """Build parameters with the sizes that follow from the cap.

    Raises BadInput for a level that zstd or a layout that this build does not have, CapTooSmall for a cap in which a
    pack's own first line and seek table leave no room worth having.
    """
    check_level(level)
    if cap is not None and cap < MIN_CAP:
        raise CapTooSmall(f"cap of {cap:,} bytes is too small: give {MIN_CAP:,} or more")
    check_layout(layout)
    return Parameters(layout, cap, level, frame_size_for(cap), part_size_for(cap), LIBZSTD)


def check_layout(layout: int) -> None:
    """Raises BadInput for a layout that this build does not write."""
    if layout not in LAYOUTS:
        raise BadInput(f"layout {layout}: this build writes {', '.join(map(str, LAYOUTS))}")
