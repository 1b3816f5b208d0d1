from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest

from davylamp.errors import InputError, MissingExtraError, TrainingError
from davylamp.training.shadow_runs import Execution, ShadowTask, check_execution, run_tasks
from davylamp.training.shadow_store import ShadowStore, Signals
from support.shadow_jobs import die, refuse, tell

TASKS = [ShadowTask(index, (index > 1, index % 2 == 0), 7 * index, f"key{index}") for index in range(3)]


def said(how):
    found = {task.index: data.decode().rsplit(" ", 1) for task, data in run_tasks(tell, "shared", TASKS, how)}
    return [found[index][0] for index in range(3)], {int(pid) for _, pid in found.values()}


def test_one_after_the_other_or_a_process_each_the_same_work_is_done():
    expected = ["shared 0 01 0 1", "shared 1 00 7 1", "shared 2 11 14 1"]
    assert said(Execution()) == (expected, {os.getpid()})
    texts, processes = said(Execution(jobs=2))
    assert texts == expected
    assert os.getpid() not in processes


@pytest.mark.parametrize(("together", "jobs", "sizes"), [(2, 1, [2, 2, 1]), (8, 1, [3, 3, 3]), (8, 2, [2, 2, 1])])
def test_shadows_are_handed_over_together_but_leave_no_job_idle(together, jobs, sizes):
    texts, _ = said(Execution(together=together, jobs=jobs))
    assert [int(text.rsplit(" ", 1)[1]) for text in texts] == sizes


def test_no_task_begins_no_process():
    assert list(run_tasks(die, "shared", [], Execution(jobs=4))) == []
    assert list(run_tasks(die, "shared", [], Execution("ray"))) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_comes_back_whole_and_what_was_done_before_it_too(jobs):
    done = []
    with pytest.raises(InputError) as caught:
        done.extend(task.index for task, _ in run_tasks(refuse, "shared", TASKS, Execution(jobs=jobs)))
    assert [fault.field for fault in caught.value.faults] == ["one", "two"]
    assert done in ([0], []) if jobs == 2 else done == [0]


def test_a_process_that_the_system_ends_is_told_with_a_way_out():
    with pytest.raises(TrainingError, match="--jobs 1"):
        list(run_tasks(die, "shared", TASKS, Execution(jobs=2)))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray_does_the_same_and_hands_errors_back(monkeypatch, tmp_path):
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    with pytest.raises(TrainingError, match="cannot import davylamp"):
        list(run_tasks(tell, "shared", TASKS, Execution("ray", jobs=2)))
    assert not ray.is_initialized()
    # Not the folder of the tests itself, whose own folders would hide modules of the standard library.
    shutil.copytree(Path(__file__).parents[1] / "support", tmp_path / "support")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # A Ray that the program has begun is used, and left.
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        texts, processes = said(Execution("ray"))
        assert texts == said(Execution())[0]
        assert os.getpid() not in processes
        with pytest.raises(InputError) as caught:
            list(run_tasks(refuse, "shared", TASKS, Execution("ray")))
        assert [fault.field for fault in caught.value.faults] == ["one", "two"]
        with pytest.raises(TrainingError, match="Ray lost a shadow"):
            list(run_tasks(die, "shared", TASKS[:1], Execution("ray")))
        assert ray.is_initialized()
    finally:
        ray.shutdown()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_a_cluster_that_does_not_answer_is_told_at_once(address):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(InputError, match="Nothing answers there"):
        list(run_tasks(tell, "shared", TASKS, Execution("ray", address=address.format(port))))


def test_what_cannot_be_carried_out_is_refused_before_anything_is_loaded(monkeypatch):
    with pytest.raises(InputError, match="--address is 'auto'; allowed: nothing without --executor ray"):
        check_execution("local", "auto")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'davylamp\[ray\]'"):
        check_execution("ray", None)


# --- what is kept


def signals(seed=0):
    rng = np.random.default_rng(seed)
    return Signals(tuple(-rng.random(count) for count in (3, 1, 4)), rng.random(5))


def test_signals_come_back_exactly(tmp_path):
    store = ShadowStore(tmp_path / "shadows")
    store.save("abc", signals().to_bytes({"key": "abc"}))
    found = store.load("abc", [3, 1, 4])
    assert found is not None
    for one, other in zip(found.logprobs, signals().logprobs, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(found.losses, signals().losses)
    assert [path.name for path in store.folder.iterdir()] == ["abc.npz"]


def test_the_same_signals_are_the_same_bytes():
    assert signals().to_bytes({"key": "a", "b": 1}) == signals().to_bytes({"b": 1, "key": "a"})
    assert signals().to_bytes({"key": "a"}) != signals(1).to_bytes({"key": "a"})


@pytest.mark.parametrize("spoil", ["missing", "cut", "text", "empty", "other key", "other records", "not a number"])
def test_a_file_that_does_not_hold_what_it_should_counts_as_missing(tmp_path, spoil):
    store = ShadowStore(tmp_path)
    data = signals().to_bytes({"key": "abc"})
    if spoil == "not a number":
        data = Signals((np.full(3, np.nan), np.zeros(1), np.zeros(4)), np.empty(0)).to_bytes({"key": "abc"})
    store.save("abc", data)
    if spoil == "missing":
        store.path("abc").unlink()
    elif spoil in ("cut", "text", "empty"):
        store.path("abc").write_bytes({"cut": data[: len(data) // 2], "text": b"no archive", "empty": b""}[spoil])
    elif spoil == "other key":
        store.save("abc", signals().to_bytes({"key": "abd"}))
    assert store.load("abc", [3, 2, 3] if spoil == "other records" else [3, 1, 4]) is None
