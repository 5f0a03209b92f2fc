"""What a script leaves to be done once it is through: bells to ring, and bodies to take off the shelf."""

from collections.abc import Sequence

from openrl.domain.ids import OpId, WorkerId
from openrl.ledger import codec
from openrl.ledger.port import Ring
from openrl.ledger.shelving import Shelving


class FollowUp:
    def __init__(self, ring: Ring, shelving: Shelving) -> None:
        self._ring, self._shelving = ring, shelving

    def do(self, bells: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        """Bells as `ring_all` takes them, and ids of ops."""
        self.ring_all(bells)
        for op_id in bodies:
            self._shelving.discard_body(OpId(op_id.decode()))

    def ring_all(self, bells: Sequence[bytes]) -> None:
        """Each bell with the worker at which to ring it behind it, empty for any."""
        for encoded, holder in zip(bells[::2], bells[1::2], strict=True):
            bell = codec.decode_bell(encoded)
            self._ring(bell.at(WorkerId(holder.decode())) if holder else bell)
