"""Stopping at the end of a step when the system or a person asks for it."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """While it is entered, SIGINT and SIGTERM are noted instead of ending the process; a second one ends it.

    Only the main thread can receive signals; entered in another thread it notes none.

    Attributes:
        signal: The signal that came, or None.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
