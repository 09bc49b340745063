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
    with Watchdog(0, lambda: 1, stop, bool):
        process.start()
        process.join()
        time.sleep(0.1)
    assert (process.exitcode, told) == (-signal.SIGTERM, [])


def test_it_ends_while_a_forked_process_runs_on() -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=receiver.recv)
    with Watchdog(0, lambda: None, bool, bool):
        process.start()
    sender.send("end")
    process.join()
    assert process.exitcode == 0
