"""The compiled toy artifact, and a device to run it on."""

from pathlib import Path

import pytest

from tests.runtime import toy
from trainc.runtime.artifact import Artifact
from trainc.runtime.data import Corpus
from trainc.runtime.device import open_device
from trainc.runtime.program import Program
from trainc.runtime.step import TrainStep


@pytest.fixture(scope="session")
def module(tmp_path_factory) -> bytes:
    out = tmp_path_factory.mktemp("toy") / "toy.vmfb"
    toy.compile_toy(out)
    return out.read_bytes()


@pytest.fixture(scope="session")
def vulkan_module(vulkan, tmp_path_factory) -> bytes:
    out = tmp_path_factory.mktemp("toy-vulkan") / "toy.vmfb"
    toy.compile_toy(out, toy.VULKAN_FLAGS)
    return out.read_bytes()


@pytest.fixture(scope="session")
def both_path(module, vulkan_module, tmp_path_factory) -> Path:
    """The artifact with modules for the CPU and for Vulkan."""
    folder = tmp_path_factory.mktemp("both") / "toy.trainc"
    return toy.write_toy(folder, module, vulkan_module=vulkan_module)


@pytest.fixture(scope="session")
def artifact_path(module, tmp_path_factory) -> Path:
    return toy.write_toy(tmp_path_factory.mktemp("artifact") / "toy.trainc", module)


@pytest.fixture(scope="session")
def device():
    return open_device("cpu")


@pytest.fixture
def program(artifact_path, device) -> Program:
    return Program(Artifact.open(artifact_path), device)


@pytest.fixture
def new_step(module, tmp_path, device):
    """Makes a TrainStep for a number of microbatches, with the initial weights of seed 0."""

    def make(accumulation_steps: int = 2, **settings) -> TrainStep:
        name = f"toy{accumulation_steps}-{len(list(tmp_path.iterdir()))}.trainc"
        artifact = Artifact.open(toy.write_toy(tmp_path / name, module, accumulation_steps, **settings))
        step = TrainStep(Program(artifact, device), toy.ToyDriver(artifact.manifest))
        step.state.start(*step.driver.initial_parameters(0))
        return step

    return make


@pytest.fixture
def data_file(tmp_path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(toy.text_bytes(1000))
    return path


@pytest.fixture
def windows(data_file):
    return Corpus([data_file], vocab=toy.VOCAB).windows(toy.LENGTH)
