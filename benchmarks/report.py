"""Figures as markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks import figures as of
from benchmarks.corpus import CorpusFacts
from benchmarks.figures import GOALS, MIB, Figures, Goal, Line, growth
from benchmarks.machine import description

_ANSWERS = {None: "", True: "yes", False: "no"}


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = list(heads)
    yield f"| {' | '.join(heads)} |"
    yield f"|---{'|---:' * (len(heads) - 1)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def head() -> Iterator[str]:
    yield "# Benchmarks"
    yield ""
    yield "Made by `python -m benchmarks`."
    yield ""
    for what, value in description():
        yield f"- {what}: {value}"
    yield ""
    yield (
        "Every figure is of a process of its own. Seconds are wall time, the median of all rounds (least to most); "
        "CPU is user and system time with subprocesses, the median; peak RSS is that of the largest process, of all "
        "rounds. The source is in the page cache; files are synced where the way itself does so."
    )
    yield ""


def describe(figures: Figures) -> str:
    facts, ratio = figures.facts, figures.uri_ratio
    in_order = "" if ratio is None else f" ({ratio:.2f} times in the order of their URIs)"
    text = (
        f"Real text, the Python library's own files, cut into {facts.chunks:,} chunks ({facts.distinct:,} distinct) of "
        f"{facts.documents:,} documents, with {facts.edges:,} made-up edges in {facts.edge_groups:,} groups. Bodies "
        f"{facts.body_bytes / 1e6:.1f} MB, which one zstd -3 stream makes {facts.zstd_ratio} times smaller{in_order}; "
        f"database {facts.db_bytes / 1e6:.1f} MB, its full-text tables empty."
    )
    if figures.repeats:
        text += (
            " **The text came round again to fill this corpus, and the order of URIs puts the copies side by side:** "
            "sizes of what is packed in that order are too good here, and are not judged."
        )
    return text


def _time(line: Line) -> str:
    least, most = line.range
    return f"{line.seconds:.2f}" + (f" ({least:.2f}–{most:.2f})" if len(line.rounds) > 1 else "")


def _cells(what: str, line: Line, chunks: int) -> tuple[str, ...]:
    made = line.bytes_out
    return (
        what,
        _time(line),
        f"{line.cpu_seconds:.2f}",
        f"{chunks / line.seconds:,.0f}",
        "-" if made is None else f"{made / 1e6:.2f}",
        f"{line.peak_rss / MIB:.0f}",
    )


def _order(figures: Figures, layouts: tuple[int, ...]) -> Iterator[str]:
    for layout in layouts:
        yield from (of.build_of(layout), of.build_of(layout, immutable=True))
    yield from (of.PLAIN, of.VACUUM, of.ZSTD, of.COPY, of.RESTIC, of.BORG)
    yield from (of.bodies_of(layout) for layout in layouts)
    yield of.BODIES_FLOOR
    yield from (of.verify_of(layout) for layout in layouts)
    yield from (of.hydrate_of(layout) for layout in layouts)
    yield of.HYDRATE_FLOOR


def corpus(figures: Figures, layouts: tuple[int, ...]) -> Iterator[str]:
    """The section of one corpus: what was measured, and the goals."""
    chunks = figures.facts.chunks
    yield f"## {chunks:,} chunks"
    yield ""
    yield describe(figures)
    yield ""
    rows = []
    for what in _order(figures, layouts):
        line = figures.lines.get(what)
        rows.append((what, figures.absent[what], *"----") if line is None else _cells(what, line, chunks))
    yield from _table(("what", "seconds", "CPU s", "chunks/s", "MB out", "peak RSS MiB"), rows)
    goals = ["goal", "limit"]
    for layout in layouts:
        goals += [f"layout {layout}", "met"]
    yield from _table(goals, (_goal(goal, figures, layouts) for goal in GOALS))


def _goal(goal: Goal, figures: Figures, layouts: tuple[int, ...]) -> Iterator[str]:
    yield goal.text
    sign = "≥" if goal.at_least else "≤"
    yield "-" if goal.limit is None else f"{sign} {goal.limit:g}{goal.unit}"
    for layout in layouts:
        value = goal.of(figures, layout)
        yield "-" if value is None else f"{value:.0f}{goal.unit}" if goal.unit else f"{value:.3g}"
        unfair = goal.of_bytes and figures.repeats
        yield "text repeats" if unfair else _ANSWERS[goal.met(value)]


def memory(corpora: list[Figures], layouts: tuple[int, ...]) -> Iterator[str]:
    """How peak memory grows with the corpus; nothing for a single one."""
    if len(corpora) < 2:
        return
    yield "## Memory"
    yield ""
    heads = ["peak RSS MiB", *(f"{figures.facts.chunks:,} chunks" for figures in corpora), "largest / smallest"]
    rows = (
        (what, *(f"{peak / MIB:.0f}" for peak in peaks), f"{ratio:.2f}")
        for what, peaks, ratio in growth(corpora, layouts)
    )
    yield from _table(heads, rows)


def levels(facts: CorpusFacts, lines: dict[int, Line], layout: int) -> Iterator[str]:
    """The builds at several levels."""
    yield "## Levels"
    yield ""
    yield f"The build of {facts.chunks:,} chunks, layout {layout}."
    yield ""
    rows = (_cells(str(level), line, facts.chunks) for level, line in lines.items())
    yield from _table(("level", "seconds", "CPU s", "chunks/s", "MB out", "peak RSS MiB"), rows)


def commands(done: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "## What was run"
    yield ""
    for what, how in done:
        yield f"- {what}: {how}"
