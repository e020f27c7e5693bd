"""The start of the `trainc` program, also as `python -m trainc.cli`."""

import sys


def run() -> int:
    """Runs the command line of this process; Ctrl-C ends it in one line even while the program is being loaded.

    Returns:
        The exit code.
    """
    try:
        from trainc.cli.main import main

        return main()
    except KeyboardInterrupt:
        print("trainc: error: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
