"""The command line: one verb a file, collected by main.py."""
