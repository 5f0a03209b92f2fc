"""Full runs on their way into the seat, from the threads of their ops. Only the copy of the base model is made on the
device's thread; reading gigabytes of files into it keeps nobody waiting."""

from collections.abc import Mapping
from typing import Any

from openrl.domain.errors import EngineBusy, FullRunWontFit
from openrl.domain.ids import RunId
from workers.device.loop import DeviceLoop
from workers.train.seat import Seat
from workers.train.succession import Succession


class Seating:
    """Whoever calls about a run holds its lock. `patient` as in `Succession.ask`, whose errors all of it raises, and
    those of `Seat`."""

    def __init__(self, seat: Seat, succession: Succession, loop: DeviceLoop[Any]) -> None:
        self._seat, self._succession, self._loop = seat, succession, loop

    def create(self, run: RunId, *, patient: bool) -> None:
        """A run with the base model's weights. Raises EngineBusy where one that was here before does not fit now: it
        did once, here or elsewhere."""
        self._succession.ask(run, patient=patient)
        try:
            self._loop.call(lambda: self._seat.create(run))
        except FullRunWontFit as error:
            if patient:
                raise EngineBusy(str(error)) from error
            raise

    def load(self, run: RunId, files: Mapping[str, bytes], *, with_optimizer: bool, patient: bool) -> None:
        """A run with the weights of a checkpoint. One that sits here already stays as it was where they do not fit."""
        new = self._seat.run(run) is None
        if new:
            self.create(run, patient=patient)
        try:
            self._seat.load(run, files, with_optimizer=with_optimizer)
        except Exception:
            if new:
                self._seat.drop(run)
            raise

    def restore(self, run: RunId, files: Mapping[str, bytes]) -> None:
        """A run that was here before goes on from its snapshot."""
        self.create(run, patient=True)
        try:
            self._seat.restore(run, files)
        except Exception:
            self._seat.drop(run)
            raise

    def drain(self) -> None:
        """Nobody waits for the seat any more."""
        self._succession.drain()
