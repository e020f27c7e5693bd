"""Running compiled artifacts: devices, resident state, the training step and loop, checkpoints, data, sampling.

Nothing here needs a compiler; the device runtime is loaded when the first device is opened.
"""
