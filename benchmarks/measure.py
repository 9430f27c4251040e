"""Time, CPU and peak memory of one call, made in a fresh process."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measured:
    """``cpu_seconds``: user and system time, with ended subprocesses; ``peak_rss``: bytes, of the largest of all."""

    seconds: float
    cpu_seconds: float
    peak_rss: int
    result: Any


def _peak_rss() -> int:
    """Bytes. Linux carries ``ru_maxrss`` over from the parent through an exec; ``VmHWM`` begins anew."""
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    peaks = [peak if sys.platform == "darwin" else peak * 1024 for peak in peaks]
    with contextlib.suppress(OSError):
        found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
        if found:
            peaks[0] = int(found[1]) * 1024
    return max(peaks)


def cpu_seconds() -> float:
    """User and system time of this process and its ended subprocesses."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _call(target: str, arguments: dict[str, Any]) -> Measured:
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    cpu, begin = cpu_seconds(), time.perf_counter()
    result = function(**arguments)
    seconds, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        result = dataclasses.asdict(result)
    return Measured(seconds, cpu, _peak_rss(), result)


def measure(target: str, /, **arguments: Any) -> Measured:
    """Call ``module:function`` with keyword arguments that JSON can spell, in a fresh process.

    Its result must be a dataclass or a JSON value. Importing the module is not timed. Raises CalledProcessError
    when the call fails; its traceback goes to this process's stderr.
    """
    command = [sys.executable, "-m", "benchmarks.measure", target, json.dumps(arguments)]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=root)
    return Measured(**json.loads(done.stdout))


def main() -> None:
    target, arguments = sys.argv[1], json.loads(sys.argv[2])
    with contextlib.redirect_stdout(sys.stderr):
        measured = _call(target, arguments)
    print(json.dumps(dataclasses.asdict(measured)))


if __name__ == "__main__":
    main()
