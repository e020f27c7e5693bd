"""Work that several threads do at once."""

import threading
from collections.abc import Callable

THREADS = 4


def in_threads(work: Callable[[int], None]) -> None:
    """Call `work` with 0, 1, ... in THREADS threads at once; none may raise."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
