"""What GPU targets share: the compiler's description of a GPU.

A description of our own, not one of the compiler's names, wherever a name promises what some device of that name has
not: the compiler uses whatever it is promised, and the device fails or, worse, computes something else.
"""

from dataclasses import dataclass

from trainc.compiler.targets.target import Target

OPT_LEVEL = "--iree-opt-level=O3"
"""Fuses the most; below it the backward pass of a Mamba-3 layer "failed to distribute" for CUDA."""

NARROW_REASON = "the compiler does not translate products of bfloat16 to SPIR-V"
"""Why the targets that go through SPIR-V refuse the precision bf16."""


@dataclass(frozen=True)
class Gpu:
    """What the compiler may use of a GPU.

    Attributes:
        arch: Its name.
        features: Features of the code format, as the compiler's back end spells them.
        compute: Types it computes in.
        storage: Widths its memory is read and written in.
        subgroup: Size of a subgroup. Without subgroup operations any device's is right, and this one only sets how
            many threads the compiler takes at once.
        operations: Subgroup operations the code may use; "none" makes it right for any subgroup size.
        sizes: Most threads of a workgroup in x, y and z.
        threads: Most threads of a workgroup in all.
        workgroup_bytes: Memory that the threads of a workgroup may share.
        counts: Most workgroups in x, y and z.
        matrix: The compiler's name of an instruction that multiplies matrices of bfloat16; "" if it has none.
    """

    arch: str
    features: str
    compute: str
    storage: str
    subgroup: int
    operations: str
    sizes: tuple[int, int, int]
    threads: int
    workgroup_bytes: int
    counts: tuple[int, int, int] = (65535, 65535, 65535)
    matrix: str = ""

    @property
    def subgroup_sizes(self) -> tuple[int, ...]:
        """The subgroup sizes with which the code is right; () is any."""
        return () if self.operations == "none" else (self.subgroup,)

    def target(self, name: str, family: str, backend: str, container: str, *flags: str) -> Target:
        """Return the target of this GPU.

        Args:
            name: The target's name.
            family: Its family, which is also the name of the driver and of the compiler's kind of device.
            backend: The compiler's back end.
            container: The format of its executables.
            *flags: Flags of iree-compile beside those of all GPUs.
        """
        return Target(
            name,
            family,
            family,
            self.arch,
            subgroup_sizes=self.subgroup_sizes,
            workgroup_bytes=self.workgroup_bytes,
            workgroup_threads=self.threads,
            refused={} if self.matrix else {"bf16": NARROW_REASON},
            _flags=(self._device_flag(family, backend, container), OPT_LEVEL, *flags),
        )

    def _device_flag(self, device: str, backend: str, container: str) -> str:
        """Return the flag of iree-compile that describes the GPU.

        Args:
            device: The compiler's name of the kind of device.
            backend: Its back end.
            container: The format of its executables.
        """
        matrix = f"mma = [<{self.matrix}>], " if self.matrix else ""
        info = (
            f'#iree_gpu.target<arch = "{self.arch}", features = "{self.features}", wgp = <compute = {self.compute}, '
            f"storage = {self.storage}, subgroup = {self.operations}, {matrix}"
            f"subgroup_size_choices = [{self.subgroup}], max_workgroup_sizes = {list(self.sizes)}, "
            f"max_thread_count_per_workgroup = {self.threads}, max_workgroup_memory_bytes = {self.workgroup_bytes}, "
            f"max_workgroup_counts = {list(self.counts)}>>"
        )
        executable = f'#hal.executable.target<"{backend}", "{container}", {{iree_codegen.target_info = {info}}}>'
        return f'--iree-hal-target-device=#hal.device.target<"{device}", [{executable}]>'
