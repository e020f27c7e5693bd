"""A device with memory of its own: the same steps as on the CPU, few copies, and failures that harm nothing."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import toy
from trainc.core.errors import ArtifactError, DeviceError
from trainc.core.state_table import StateTable
from trainc.runtime import buffers, staging
from trainc.runtime.artifact import Artifact
from trainc.runtime.buffers import FlatBuffer, HostMemory, MirroredBuffer, aligned_zeros, new_flat_buffer
from trainc.runtime.checkpoint import read_checkpoint
from trainc.runtime.checkpoint_store import CheckpointStore
from trainc.runtime.decode import Decoder, generate
from trainc.runtime.evaluation import evaluate
from trainc.runtime.loop import RunOptions, Silent, train
from trainc.runtime.program import Program
from trainc.runtime.sampling import SamplingOptions
from trainc.runtime.step import TrainStep

ROOT = Path(__file__).resolve().parents[2]
STEPS = 12
# Both devices add the same float32 terms, in other orders: a loss is a mean of 32 of them, a norm the root of a sum of
# squares that twelve steps have carried differences into, and weights near 1 differ by a few units of 2**-24 a step.
LOSS, NORM, WEIGHTS = 1e-6, 1e-5, 2e-6
IDS = np.arange(16, dtype=np.int32).reshape(2, 8)


@pytest.fixture
def program(both_path, vulkan) -> Program:
    return Program(Artifact.open(both_path), vulkan)


@pytest.fixture
def trainer_on(both_path):
    def make(device) -> TrainStep:
        artifact = Artifact.open(both_path)
        step = TrainStep(Program(artifact, device), toy.ToyDriver(artifact.manifest))
        step.state.start(*step.driver.initial_parameters(0))
        return step

    return make


def batches(count=STEPS):
    rng = np.random.default_rng(5)
    return [rng.integers(0, toy.VOCAB, (4, toy.LENGTH + 1), np.uint8) for _ in range(count)]


def test_the_modules_of_the_devices_own_target_run(program):
    assert program.target_name == "lavapipe"
    assert program.target.subgroup_sizes == (program.device.info.subgroup_size,)


def test_training_follows_the_cpu(trainer_on, device, vulkan):
    here, there = trainer_on(device), trainer_on(vulkan)
    for windows in batches():
        expected, found = (step.run(step.driver.inputs(windows)) for step in (here, there))
        np.testing.assert_allclose(found.loss, expected.loss, rtol=LOSS)
        np.testing.assert_allclose(found.grad_norm, expected.grad_norm, rtol=NORM)
    for name in ("params", "m", "v"):
        expected, found = (getattr(step.state, name).flat for step in (here, there))
        np.testing.assert_allclose(found, expected, atol=WEIGHTS)
    assert there.state.step == STEPS


def test_between_steps_only_tensors_are_copied(trainer_on, vulkan, monkeypatch):
    step = trainer_on(vulkan)
    windows = batches(4)
    step.run(step.driver.inputs(windows[0]))  # brings the state there
    sizes = []
    copy = staging.Transfer.copy

    def noted(self, source, target):
        sizes.append(source.byte_length())
        copy(self, source, target)

    def refuse(*arguments):
        raise AssertionError("a flat buffer was copied")

    monkeypatch.setattr(staging.Transfer, "copy", noted)
    monkeypatch.setattr(buffers, "upload", refuse)
    monkeypatch.setattr(buffers, "download", refuse)
    for batch in windows[1:]:
        sizes.clear()
        step.run(step.driver.inputs(batch))
        blocks_bytes = 4 * toy.PARAMS.size // 64
        # ids and targets of two microbatches, their losses, and the norms' two results
        assert sorted(sizes) == sorted([IDS.nbytes] * 4 + [4, 4] + [blocks_bytes] * 2)


class TestMirror:
    def test_it_is_zero_at_the_start(self, program):
        state = program.new_state("params")
        assert isinstance(state, MirroredBuffer)
        assert not program.call("norms", {"grads": state})["block_max"].any()
        assert not state.flat.any()

    def test_what_is_written_reaches_the_next_call(self, program):
        state = program.new_state("params")
        for value in (3.0, 5.0):
            state.views()["b"][...] = value
            assert program.call("norms", {"grads": state})["block_max"][-1] == value
        state.write({"W": np.full((32, 32), 2, np.float32), "b": np.full(32, 7, np.float32)})
        assert program.call("norms", {"grads": state})["block_max"].tolist() == [2.0] * 16 + [7.0]
        state.clear()
        assert not program.call("norms", {"grads": state})["block_max"].any()

    def test_what_a_call_wrote_is_seen(self, program):
        one, two = program.new_state("params"), program.new_state("params")
        one.flat[:], two.flat[:] = 1, 2
        program.call("accumulate", {"grads": one, "accum": two})
        assert (one.flat == 3).all()
        program.call("accumulate", {"grads": one, "accum": two})
        program.call("accumulate", {"grads": two, "accum": one})
        assert (one.flat == 5).all()
        assert (two.flat == 7).all()

    def test_views_from_before_a_call_show_nothing_new_until_asked_for_again(self, program):
        one, two = program.new_state("params"), program.new_state("params")
        one.flat[:], two.flat[:] = 1, 2
        old = one.views()["b"]
        program.call("accumulate", {"grads": one, "accum": two})
        assert (old == 1).all()
        assert (one.views()["b"] == 3).all()

    def test_the_host_side_stays_when_the_device_goes(self, program):
        state = program.new_state("params")
        state.flat[:] = 4
        state.release()
        assert (state.flat == 4).all()
        with pytest.raises(DeviceError, match="closed"):
            program.call("norms", {"grads": state})


def test_evaluating_and_decoding_follow_the_cpu(both_path, device, vulkan, windows):
    found = []
    for there in (device, vulkan):
        artifact = Artifact.open(both_path)
        driver = toy.ToyDriver(artifact.manifest)
        program = Program(artifact, there)
        params = program.new_state("params")
        params.write(driver.initial_parameters(3)[0])
        loss = evaluate(program, driver, params, windows, 8).loss
        options = SamplingOptions(temperature=0.7, seed=4)
        found.append((loss, [g.tokens for g in generate(Decoder(program, params), [1, 2, 3, 4, 5], 10, options)]))
    assert found[0][1] == found[1][1]
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=LOSS)


def test_a_run_goes_on_on_another_device(trainer_on, device, vulkan, windows, tmp_path):
    ends = []
    for number, second in enumerate((device, vulkan)):
        out = tmp_path / str(number)
        train(trainer_on(device), windows, RunOptions(out=out, steps=4))
        train(trainer_on(second), windows, RunOptions(out=out, steps=9, resume=True))
        report = train(trainer_on(device), windows, RunOptions(out=out, steps=10, resume=True))
        ends.append((report.last.loss, read_checkpoint(report.checkpoint).parameters["W"]))
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=LOSS)
    np.testing.assert_allclose(ends[1][1], ends[0][1], atol=WEIGHTS)


def test_threads_may_call_at_the_same_time(program):
    params = program.new_state("params")
    params.flat[:] = np.random.default_rng(0).normal(size=params.flat.size)
    call = {"params": params, "ids": IDS, "targets": IDS}
    expected, found = program.call("eval_loss", call)["nll"], []

    def work():
        for _ in range(10):
            found.append(program.call("eval_loss", call)["nll"].tobytes())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected.tobytes()] * 40


def test_a_buffer_of_another_device_is_refused(program, device):
    with pytest.raises(DeviceError, match=f"'params' lives on device 'cpu', the entry runs on '{program.device.name}'"):
        program.call("norms", {"grads": FlatBuffer(device, toy.PARAMS)})


def test_host_memory_is_for_the_cpu_alone(vulkan):
    with pytest.raises(DeviceError, match=f"in place by {vulkan.name}"):
        HostMemory(vulkan, aligned_zeros((64,), np.float32))


def test_no_room_says_how_much_was_asked_for(vulkan):
    size = 2**31
    with pytest.raises(DeviceError, match=rf"buffer 'm' of {4 * size} bytes: vulkan:\d .* is out of memory"):
        new_flat_buffer(vulkan, StateTable.build("params", [("W", (size,))]), "m")


FAULTS = {
    "the next buffer": ("HalAllocator", "allocate_buffer", "RESOURCE_EXHAUSTED; no more", "is out of memory"),
    "a call": ("VmContext", "invoke", "INTERNAL; VK_ERROR_DEVICE_LOST", "is lost; start again"),
    "room in a call": ("VmContext", "invoke", "RESOURCE_EXHAUSTED; allocation of 99 bytes", "out of memory.*99 bytes"),
    "a copy": ("HalDevice", "queue_copy", "INTERNAL; odd", "a copy failed on device 'vulkan:.': INTERNAL; odd"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_failing_device_leaves_the_last_checkpoint(trainer_on, vulkan, windows, tmp_path, monkeypatch, what):
    import iree.runtime as rt

    owner, method, said, text = FAULTS[what]

    def fail(*arguments, **keywords):
        raise RuntimeError(said)

    class Break(Silent):
        def step(self, step, metrics) -> None:
            if step == 7:
                monkeypatch.setattr(getattr(rt, owner), method, fail)

    options = RunOptions(out=tmp_path / "run", steps=12, checkpoint_every=5)
    with pytest.raises(DeviceError, match=text):
        train(trainer_on(vulkan), windows, options, Break())
    monkeypatch.undo()
    assert read_checkpoint(CheckpointStore(tmp_path / "run").latest()).state["step"] == 5
    resumed = train(trainer_on(vulkan), windows, RunOptions(out=tmp_path / "run", steps=12, resume=True))
    straight = train(trainer_on(vulkan), windows, RunOptions(out=tmp_path / "straight", steps=12))
    assert resumed.checkpoint.read_bytes() == straight.checkpoint.read_bytes()


def test_modules_of_another_device_do_not_load(module, vulkan, tmp_path):
    folder = toy.write_toy(tmp_path / "a.trainc", module, vulkan_module=module)
    program = Program(Artifact.open(folder), vulkan)
    with pytest.raises(ArtifactError, match=r"lavapipe/toy\.vmfb does not load on 'vulkan:"):
        program.call("norms", {"grads": program.new_state("params")})


def test_another_subgroup_size_is_refused(both_path, vulkan):
    artifact = Artifact.open(both_path)
    text = (both_path / "manifest.json").read_text()
    artifact = Artifact(artifact.path, type(artifact.manifest).from_text(text.replace(" 8\n", " 32\n")))
    with pytest.raises(DeviceError, match=r"compiled for lavapipe with subgroups of 32, found vulkan:. \(llvmpipe"):
        Program(artifact, vulkan)


USE = """if True:
    import resource, sys
    import numpy as np
    from trainc.runtime.artifact import Artifact
    from trainc.runtime.device import open_device
    from trainc.runtime.program import Program

    device = open_device(sys.argv[2])
    program = Program(Artifact.open(sys.argv[1]), device)
    params, grads = program.new_state("params"), program.new_state("params")
    ids = np.zeros((2, 8), np.int32)
    call = {"params": params, "grads": grads, "ids": ids, "targets": ids, "divisor": 1.0}
    for _ in range(20):
        program.call("gradients", call)
"""


@pytest.mark.parametrize("end", ["", "kept = [grads]; kept.append(kept)", "del program, device"])
def test_the_process_ends_without_a_word(both_path, vulkan, end):
    run = python(f"{USE}\n    {end}\n", both_path, vulkan.name)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("broken", "use"), [("VmContext.invoke", "program.call('gradients', call)"), ("HalSemaphore.wait", "grads.flat")]
)
def test_a_failure_nobody_catches_ends_in_its_traceback(both_path, vulkan, broken, use):
    # The traceback keeps handles to the very end, after the device.
    code = f"""{USE}
    import iree.runtime as rt
    def fail(*arguments):
        raise RuntimeError("INTERNAL; odd")
    rt.{broken} = fail
    {use}
"""
    run = python(code, both_path, vulkan.name)
    assert run.stderr.splitlines()[-1].endswith(f"failed on device '{vulkan.name}': INTERNAL; odd")
    assert run.returncode == 1


def test_many_calls_and_copies_take_no_more_memory(both_path, vulkan):
    code = f"""{USE}
    from trainc.core.state_table import StateTable
    from trainc.runtime.buffers import new_flat_buffer
    large = new_flat_buffer(device, StateTable.build("large", [("x", (2**21,))]))
    def use(count):
        for _ in range(count):
            large.flat, large.handle
        for _ in range(10 * count):
            program.call("gradients", call)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(-use(2) + use(20))
"""
    run = python(code, both_path, vulkan.name)
    assert run.stderr == ""
    assert int(run.stdout) < 24 * 1024  # KiB; the 20 copies each way are of 8 MiB each


def python(code, *arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=os.environ)


def test_a_run_of_its_own_ends_as_on_the_cpu(both_path, vulkan, data_file, tmp_path):
    found = []
    for name in ("cpu", vulkan.name):
        options = json.dumps({"steps": 6, "device": name})
        command = [sys.executable, "-m", "tests.runtime.run_toy", both_path, data_file, tmp_path / name, options]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert (run.returncode, run.stderr) == (0, "")
        rows = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        found.append([json.loads(row)["train/loss"] for row in rows])
    np.testing.assert_allclose(found[1], found[0], rtol=LOSS)
