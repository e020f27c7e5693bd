"""A contender for the tests: its loss falls by one a step, and it prints where it should not."""

import sys

from benchmarks.contenders import protocol


class FakeContender:
    def __init__(self, job):
        print("a stray line")
        self.loss, self.last = job["first_loss"], job["last_loss"]
        self.facts = {"version": "fake 1"}

    def step(self):
        print("another one")
        if self.loss == self.last:
            sys.exit(3)
        self.loss -= 1
        return self.loss


if __name__ == "__main__":
    protocol.serve(FakeContender)
