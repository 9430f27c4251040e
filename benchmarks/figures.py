"""What was measured of one corpus, and what follows from it: medians, and ratios beside the goals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.corpus import CorpusFacts
from benchmarks.measure import Measured

MIB = 1 << 20

PLAIN = "the plain way"
VACUUM = "VACUUM INTO"
ZSTD = "zstd of that copy"
COPY = "VACUUM INTO, then zstd"
RESTIC = "restic backup"
BORG = "borg create"
BODIES_FLOOR = "zstd over all bodies"
HYDRATE_FLOOR = "INSERT ... SELECT into a new database"


def build_of(layout: int, *, immutable: bool = False) -> str:
    return f"build, layout {layout}{', source immutable' if immutable else ''}"


def bodies_of(layout: int) -> str:
    return f"body path alone, layout {layout}"


def verify_of(layout: int) -> str:
    return f"verify, layout {layout}"


def hydrate_of(layout: int) -> str:
    return f"hydrate, layout {layout}"


@dataclass(frozen=True)
class Line:
    """One thing that was measured, in one round or more. Bytes and seconds."""

    rounds: tuple[Measured, ...]

    @property
    def seconds(self) -> float:
        return statistics.median(one.seconds for one in self.rounds)

    @property
    def range(self) -> tuple[float, float]:
        return min(one.seconds for one in self.rounds), max(one.seconds for one in self.rounds)

    @property
    def cpu_seconds(self) -> float:
        return statistics.median(one.cpu_seconds for one in self.rounds)

    @property
    def peak_rss(self) -> int:
        """The largest of all rounds."""
        return max(one.peak_rss for one in self.rounds)

    @property
    def bytes_out(self) -> int | None:
        made: int | None = self.rounds[0].result["bytes_out"]
        return made


@dataclass
class Figures:
    """Of one corpus. What could not be measured has no line, and its reason in ``absent``."""

    facts: CorpusFacts
    lines: dict[str, Line] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    body_bytes: dict[int, int] = field(default_factory=dict)
    """Of each layout's set: compressed bytes of all but the tables, so bodies, catalogue and seek tables."""

    @property
    def uri_ratio(self) -> float | None:
        """Bytes of all bodies in the order of their URIs over their size as one stream of the zstd command."""
        floor = self.lines.get(BODIES_FLOOR)
        return self.facts.body_bytes / floor.bytes_out if floor is not None and floor.bytes_out else None

    @property
    def repeats(self) -> bool:
        """Whether the text came round again and the order of URIs puts the copies side by side.

        Then what is packed in that order is smaller than it would be of a text without copies.
        """
        return (self.uri_ratio or 0) > 1.5 * self.facts.zstd_ratio

    def peak(self, layout: int) -> int:
        """Peak RSS of this project's own steps."""
        steps = [build_of(layout), build_of(layout, immutable=True), bodies_of(layout)]
        steps += [verify_of(layout), hydrate_of(layout)]
        return max(self.lines[step].peak_rss for step in steps if step in self.lines)


def _seconds(figures: Figures, one: str, other: str) -> float:
    return figures.lines[one].seconds / figures.lines[other].seconds


def _bytes(figures: Figures, one: str, other: str) -> float:
    made, against = figures.lines[one].bytes_out, figures.lines[other].bytes_out
    if made is None or not against:
        raise KeyError(one)
    return made / against


def _body_bytes(figures: Figures, layout: int) -> float:
    plain = figures.lines[PLAIN].rounds[0].result
    bodies: int = plain["bytes_out"] - plain["tables_bytes_out"]
    return figures.body_bytes[layout] / bodies


@dataclass(frozen=True)
class Goal:
    """A ratio (or another number) that must stay on one side of a limit; ``limit`` None: only told."""

    text: str
    value: Callable[[Figures, int], float]
    limit: float | None
    at_least: bool = False
    unit: str = ""
    of_bytes: bool = False

    def of(self, figures: Figures, layout: int) -> float | None:
        """None if something it needs was not measured."""
        try:
            return self.value(figures, layout)
        except KeyError:
            return None

    def met(self, value: float | None) -> bool | None:
        if value is None or self.limit is None:
            return None
        return value >= self.limit if self.at_least else value <= self.limit


GOALS = (
    Goal("build: times as fast as the plain way", lambda f, n: _seconds(f, PLAIN, build_of(n)), 30, at_least=True),
    Goal(
        "the same, source immutable (the plain way makes no copy either)",
        lambda f, n: _seconds(f, PLAIN, build_of(n, immutable=True)),
        None,
    ),
    Goal("body path: seconds / zstd over all bodies", lambda f, n: _seconds(f, bodies_of(n), BODIES_FLOOR), 1.3),
    Goal("build: seconds / VACUUM INTO, then zstd", lambda f, n: _seconds(f, build_of(n), COPY), 1.0),
    Goal("bodies and catalogue: bytes / the plain way's bodies", _body_bytes, 0.47, of_bytes=True),
    Goal("whole set: bytes / VACUUM INTO, then zstd", lambda f, n: _bytes(f, build_of(n), COPY), 0.65, of_bytes=True),
    Goal("hydrate: seconds / INSERT ... SELECT", lambda f, n: _seconds(f, hydrate_of(n), HYDRATE_FLOOR), 1.5),
    Goal("verify: seconds / build", lambda f, n: _seconds(f, verify_of(n), build_of(n)), 1.0),
    Goal("peak RSS of any step", lambda f, n: f.peak(n) / MIB, 400, unit=" MiB"),
)


def growth(corpora: list[Figures], layouts: tuple[int, ...]) -> Iterator[tuple[str, list[float], float]]:
    """(what, peak RSS in bytes at each corpus, largest corpus against smallest) for each line all corpora have."""
    for layout in layouts:
        for what in (build_of(layout), build_of(layout, immutable=True), verify_of(layout), hydrate_of(layout)):
            yield _grown(what, corpora)
    yield _grown(PLAIN, corpora)


def _grown(what: str, corpora: list[Figures]) -> tuple[str, list[float], float]:
    peaks = [float(figures.lines[what].peak_rss) for figures in corpora]
    return what, peaks, peaks[-1] / peaks[0]
