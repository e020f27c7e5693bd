"""`trainc` killed in the middle of a save: python -m tests.samba.killed_cli EVENT NUMBER ARGUMENT...

The process gets SIGKILL at the NUMBER-th (from 1) EVENT of its saves; see tests/runtime/killing.py for their names.
"""

import os
import signal
import sys

from tests.runtime.killing import Events
from trainc.cli.main import main


class KillAt(Events):
    """Kills this process at one occurrence of one event."""

    def __init__(self, event: str, number: int) -> None:
        super().__init__()
        self._event, self._number = event, number

    def note(self, name: str) -> None:
        self.seen.append(name)
        if name == self._event and self.seen.count(name) == self._number:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    KillAt(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
