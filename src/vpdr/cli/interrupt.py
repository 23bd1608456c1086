"""Ctrl-C: the first one ends a run between two rounds, the second one at once."""

import signal
import sys
from types import FrameType
from typing import Any


class Interrupt:
    """While it is open, the first Ctrl-C is only noted, so that what is under way ends whole."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        sys.stderr.write("stopping after what is under way; once more to stop at once\n")
