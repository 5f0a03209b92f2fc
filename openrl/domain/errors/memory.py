"""Why a datum cannot be trained on: the device has no memory for it, or had none when it was tried."""

from openrl.domain.errors.branches import CallerError


class DatumTooLarge(CallerError):
    """A datum that the device cannot hold even by itself. Facts: its place in the batch, its tokens, bytes it needs and
    bytes there are."""

    def __init__(self, place: int, tokens: int, needed_bytes: int, available_bytes: int) -> None:
        super().__init__(place, tokens, needed_bytes, available_bytes)

    def __str__(self) -> str:
        place, tokens, *amounts = self.args
        needed, available = map(_amount, amounts)
        return (
            f"data[{place}]: its {tokens} tokens need {needed} of memory, and this server has {available} for a pass; "
            "send shorter datums, or ask the operator for a larger device or OPENRL_TRAIN__MEMORY_GB"
        )


class MemoryRanOut(CallerError):
    """A datum that should have fitted by itself did not. Facts: its place in the batch, its tokens, bytes estimated."""

    servers_fault = True

    def __init__(self, place: int, tokens: int, estimated_bytes: int) -> None:
        super().__init__(place, tokens, estimated_bytes)

    def __str__(self) -> str:
        place, tokens, estimated = self.args
        return (
            f"data[{place}]: memory ran out although its {tokens} tokens ran alone and should need "
            f"{_amount(estimated)}; nothing was applied. "
            "Send shorter datums, or ask the operator what else takes memory"
        )


def _amount(size: int) -> str:
    """Of bytes, in decimal units."""
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
