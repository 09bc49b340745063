"""Signals and forked processes around what watches a rank under ``gradir run``."""

from __future__ import annotations

import multiprocessing
import signal
import time

import pytest

from gradir.cli.waiting import Watchdog

if not Watchdog.is_possible():
    pytest.skip("needs signals that reach a socket", allow_module_level=True)


def test_a_signal_to_a_forked_process_ends_that_alone() -> None:
    told: list[str] = []

    def stop(why: str) -> bool:
        told.append(why)
        return True

    process = multiprocessing.get_context("fork").Process(target=signal.raise_signal, args=(signal.SIGTERM,))
    with Watchdog(0, lambda: 1, stop):
        process.start()
        process.join()
        time.sleep(0.1)
    assert (process.exitcode, told) == (-signal.SIGTERM, [])


def test_it_ends_while_a_forked_process_runs_on() -> None:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,))
    with Watchdog(0, lambda: None, bool):
        process.start()
    process.terminate()
    process.join()
    assert process.exitcode == -signal.SIGTERM
