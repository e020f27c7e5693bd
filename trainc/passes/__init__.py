"""Rewrites of a program, one a file: layer ops to primitives, primitives to linalg, linalg to what a target wants."""
