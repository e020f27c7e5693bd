"""From a program to an artifact: targets, the compiler driver, the cache and the writer."""
