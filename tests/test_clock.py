"""A limit holds against whatever the work does, in the main thread and elsewhere."""

import signal
import threading
import time
from contextlib import suppress

import pytest

from lostwax import clock as module
from lostwax.clock import Clock, TimeUp


def endless():
    while True:
        pass


def deaf():
    while True:
        with suppress(BaseException):
            time.sleep(0.001)


def patient():
    while True:
        with suppress(Exception):
            time.sleep(0.001)


def indignant():
    try:
        time.sleep(4)
    except BaseException as error:
        raise ValueError("training failed") from error


def elsewhere(work):
    """What comes of it in another thread than the main one."""
    found = []

    def body():
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(60)
    return found[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "RING_AGAIN", 0.05)
    monkeypatch.setattr(module, "STOPPING", 1.0)


@pytest.mark.parametrize("work", [endless, deaf, patient, indignant], ids=lambda work: work.__name__)
def test_work_without_an_end_is_stopped(work):
    start = time.monotonic()
    with pytest.raises(TimeUp):
        Clock.started(0.3 / 60).run(work)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("work", [endless, deaf, patient, indignant], ids=lambda work: work.__name__)
def test_so_it_is_in_another_thread(work, untraced):
    start = time.monotonic()
    found = elsewhere(lambda: Clock.started(0.3 / 60).run(work))
    assert isinstance(found, TimeUp)
    assert time.monotonic() - start < 10


def test_a_sleep_in_another_thread_is_left_behind(untraced):
    start = time.monotonic()
    found = elsewhere(lambda: Clock.started(0.3 / 60).run(lambda: time.sleep(4)))
    assert isinstance(found, TimeUp)
    assert found.still_running
    assert time.monotonic() - start < 4


def test_results_and_errors_come_through_in_both():
    for run in (lambda work: work(), elsewhere):
        assert run(lambda: Clock.started(1).run(lambda: 3)) == 3
        assert run(lambda: Clock().run(lambda: 3)) == 3

    def fail():
        return Clock.started(1).run(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        fail()
    assert isinstance(elsewhere(fail), ZeroDivisionError)


@pytest.mark.parametrize("minutes", [1e300, 1e-300])
def test_a_limit_of_any_size_can_be_counted(minutes):
    def work():
        return Clock.started(minutes).run(lambda: 3)

    if minutes > 1:
        assert work() == 3
        assert elsewhere(work) == 3
    else:
        for found in (elsewhere(lambda: Clock.started(minutes).run(patient)),):
            assert isinstance(found, TimeUp)


def test_a_timer_of_the_user_s_is_running_again_afterwards():
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 50)
        Clock.started(1).run(lambda: None)
        assert 40 < signal.getitimer(signal.ITIMER_REAL)[0] <= 50
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_deadlines_are_announced_and_taken_back(monkeypatch):
    heard = []
    monkeypatch.setattr(module, "_listeners", [heard.append])
    clock = Clock.started(10)
    clock.run(lambda: None)
    assert heard == [clock.end + 0.08 * 600, None]
    assert Clock.started(0.1).slack == 8
