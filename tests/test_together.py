"""Steps at the same time: all of them, the first error in order, nothing left running."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pack_lib.together import CalledOff, checkpoint, leads, together

ROOT = Path(__file__).resolve().parents[1]


def test_they_run_at_once() -> None:
    barrier = threading.Barrier(4, timeout=20)
    together([barrier.wait] * 4)


def _until_called_off(seen: list[str], name: str, begun: threading.Event) -> None:
    begun.set()
    try:
        while True:
            checkpoint()
            time.sleep(0.001)
    except CalledOff:
        seen.append(name)
        raise


def test_a_failure_calls_off_the_steps_after_it_and_awaits_those_before() -> None:
    seen: list[str] = []
    failed, third_begun = threading.Event(), threading.Event()

    def first() -> None:
        assert failed.wait(20)
        time.sleep(0.05)
        checkpoint()
        seen.append("first ended")

    def second() -> None:
        assert third_begun.wait(20)
        failed.set()
        raise ValueError("second")

    with pytest.raises(ValueError, match="second"):
        together([first, second, lambda: _until_called_off(seen, "third", third_begun)])
    assert sorted(seen) == ["first ended", "third"]


def test_the_first_error_in_order_is_raised_whichever_came_first() -> None:
    later_failed = threading.Event()

    def first() -> None:
        assert later_failed.wait(20)
        raise KeyError("first")

    def second() -> None:
        later_failed.set()
        raise ValueError("second")

    with pytest.raises(KeyError, match="first"):
        together([first, second])


SIGNALLED = """
import os, signal, threading, time
from pack_lib.together import CalledOff, checkpoint, together

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
seen, second_begun = [], threading.Event()

def step(name, begin):
    begin()
    try:
        while True:
            checkpoint()
            time.sleep(0.001)
    except CalledOff:
        seen.append(name)
        raise

def kill():
    assert second_begun.wait(20)
    os.kill(os.getpid(), signal.SIGINT)

try:
    together([lambda: step("first", kill), lambda: step("second", second_begun.set)])
except KeyboardInterrupt:
    print(sorted(seen), [thread.name for thread in threading.enumerate() if thread.name.startswith("step")])
"""


def test_a_signal_calls_off_all() -> None:
    done = subprocess.run([sys.executable, "-c", SIGNALLED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['first', 'second'] []\n", "")


def test_the_last_at_work_shows_its_progress() -> None:
    second_asked, first_asked = threading.Event(), threading.Event()
    shown: dict[str, bool] = {}

    def first() -> None:
        assert second_asked.wait(20)
        shown["first, beside the second"] = leads()
        first_asked.set()
        while not leads():
            time.sleep(0.001)
        shown["first, alone"] = True

    def second() -> None:
        shown["second"] = leads()
        second_asked.set()
        assert first_asked.wait(20)

    together([first, second])
    assert shown == {"first, beside the second": False, "second": True, "first, alone": True}


def test_outside_of_it_nothing_is_called_off() -> None:
    checkpoint()
    assert leads()
