# SPDX-License-Identifier: BSD-3-Clause
"""What rank 0 shows of a training: a bar that moves on a terminal, a line now and then elsewhere."""

import shutil
import sys
import time

_LINES = 10  # of a training whose output is not a terminal
_REDRAW_S = 0.1


class Meter:
    """Loss, speed and share of communication of the steps of one training."""

    def __init__(self, name, steps, tokens, shown):
        self.name = name
        self.steps = steps
        self.tokens = tokens  # of all ranks, in one step
        self.shown = shown
        self.terminal = shown and sys.stdout.isatty()
        self.done = 0
        self.loss = 0.0
        self.seconds = 0.0
        self.waited = 0.0
        self._drawn = 0.0
        self._begun = False

    def step(self, loss, seconds, waited):
        """The first step is not counted in the speed: it makes buffers that the others use again."""
        self.done += 1
        self.loss = loss
        if self.done > 1:
            self.seconds += seconds
            self.waited += waited
        if self.terminal and (time.monotonic() - self._drawn > _REDRAW_S or self.done == self.steps):
            self._drawn = time.monotonic()
            self._draw()
        elif self.shown and not self.terminal and self._tenths(self.done) > self._tenths(self.done - 1):
            print(self._line(), flush=True)

    def _tenths(self, done):
        return done * _LINES // self.steps

    @property
    def speed(self):
        return (self.done - 1) * self.tokens / self.seconds if self.seconds else 0.0

    @property
    def step_ms(self):
        return 1e3 * self.seconds / max(1, self.done - 1)

    @property
    def share(self):
        return self.waited / self.seconds if self.seconds else 0.0

    def _line(self, bar=""):
        return (
            f"{self.name:<9} {bar}step {self.done:>{len(str(self.steps))}}/{self.steps}  loss {self.loss:.4f}  "
            f"{self.speed:6,.0f} tokens/s  communication {100 * self.share:4.1f} %"
        )

    def _draw(self):
        columns = shutil.get_terminal_size().columns
        room = min(30, columns - len(self._line()) - 2)
        bar = ""
        if room >= 5:
            eighths = 8 * room * self.done // self.steps
            bar = "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
            bar = f"{bar:<{room}} "
        # Each line is ended, and the next one overwrites it. So output of others in between begins a line of its own.
        up = "\x1b[1A" if self._begun else ""
        self._begun = True
        sys.stdout.write(f"{up}\r{self._line(bar)[: columns - 1]}\x1b[K\n")
        sys.stdout.flush()


def show_side_by_side(meters):
    print(f"\n{'backend':<9} {'loss':>9} {'tokens/s':>9} {'a step':>11} {'communication':>14}")
    for meter in meters:
        print(
            f"{meter.name:<9} {meter.loss:9.5f} {meter.speed:9,.0f} {meter.step_ms:8.1f} ms {100 * meter.share:12.1f} %"
        )
