"""A thread that waits for a device: its scheduling policy, during a call and after it."""

import os
import threading

import numpy as np
import pytest

from trainc.runtime.artifact import Artifact
from trainc.runtime.program import Program
from trainc.runtime.waiting import call_behind_workers

linux_only = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux has this policy")


def policy() -> int:
    return os.sched_getscheduler(0)


@linux_only
def test_the_policy_is_for_batch_work_during_the_call_only():
    before = policy()
    assert call_behind_workers(policy) == os.SCHED_BATCH
    assert policy() == before == os.SCHED_OTHER


@linux_only
def test_the_policy_comes_back_after_an_error():
    def fail(text):
        raise KeyboardInterrupt(text)

    with pytest.raises(KeyboardInterrupt, match="stop"):
        call_behind_workers(fail, "stop")
    assert policy() == os.SCHED_OTHER


@linux_only
def test_a_policy_of_the_callers_own_stays():
    seen = []

    def idle_thread():
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        seen.extend([call_behind_workers(policy), policy()])

    thread = threading.Thread(target=idle_thread)
    thread.start()
    thread.join()
    assert seen == [os.SCHED_IDLE, os.SCHED_IDLE]


@linux_only
def test_a_system_that_refuses_is_left_alone(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert call_behind_workers(policy) == os.SCHED_OTHER


def test_a_system_without_such_policies(monkeypatch):
    monkeypatch.setattr("trainc.runtime.waiting._BATCH", None)
    monkeypatch.delattr(os, "sched_getscheduler", raising=False)
    assert call_behind_workers(max, 3, 4) == 4


@linux_only
def test_programs_wait_that_way(artifact_path, device, monkeypatch):
    asked, set_policy = [], os.sched_setscheduler

    def note(thread, wanted, parameters):
        asked.append(wanted)
        set_policy(thread, wanted, parameters)

    program = Program(Artifact.open(artifact_path), device)
    grads = program.new_state("params")
    monkeypatch.setattr(os, "sched_setscheduler", note)
    norms = program.call("norms", {"grads": grads})
    assert asked == [os.SCHED_BATCH, os.SCHED_OTHER]
    np.testing.assert_array_equal(norms["block_max"], 0.0)
