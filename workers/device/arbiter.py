"""Who may use the device next. Pure: it is told what is waiting and how long things took, and knows no device."""

from dataclasses import dataclass
from enum import StrEnum


class Side(StrEnum):
    TRAIN = "train"
    SAMPLE = "sample"


@dataclass(slots=True)
class Arbiter:
    """Shares contested device time evenly; time that nobody else wanted is free."""

    lead_seconds: float = 0.0  #: how far training is ahead in contested time; negative when sampling is
    most_lead_seconds: float = 5.0  #: a side that waited longer than this gets no more than this back in one go

    def next(self, *, train: bool, sample: bool) -> Side | None:
        """The side to serve, given which sides have work."""
        if train and sample:
            return Side.SAMPLE if self.lead_seconds > 0 else Side.TRAIN
        if train:
            return Side.TRAIN
        return Side.SAMPLE if sample else None

    def spent(self, side: Side, seconds: float, *, contested: bool) -> None:
        if not contested:
            self.lead_seconds = 0.0
            return
        signed = seconds if side is Side.TRAIN else -seconds
        bound = self.most_lead_seconds
        self.lead_seconds = min(bound, max(-bound, self.lead_seconds + signed))
