"""What a program can be compiled for: named targets, one family of them a file."""

from trainc.compiler.targets.cpu import hardware
from trainc.compiler.targets.table import aliases_of, find_target, target_names
from trainc.compiler.targets.target import Target

__all__ = ["Target", "aliases_of", "find_target", "hardware", "target_names"]
