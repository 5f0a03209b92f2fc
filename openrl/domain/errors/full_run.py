"""Why a run cannot train all weights here, or cannot be sampled: not enabled, no place, no memory."""

from openrl.domain.errors.branches import CallerError


class FullRunsOff(CallerError):
    """A run that trains all weights was asked for where the operator has not enabled it."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return (
            "lora_config: this server does not train all weights; ask for a LoRA rank, or have its operator set "
            "OPENRL_TRAIN__FULL_RUNS=true"
        )


class FullRunTaken(CallerError):
    """The worker's one seat for a full run is in use."""

    servers_fault = True

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return (
            "lora_config: another run that trains all weights is at work here, and a worker holds one at a time; "
            "try again when it has ended, or ask for a LoRA rank"
        )


class FullRunWontFit(CallerError):
    """Facts: the bytes that a full run takes, and those that are free."""

    servers_fault = True

    def __init__(self, needed_bytes: int, free_bytes: int) -> None:
        super().__init__(needed_bytes, free_bytes)
        self.needed_bytes, self.free_bytes = needed_bytes, free_bytes

    def __str__(self) -> str:
        needed, free = (each / 1e9 for each in self.args)
        return (
            f"lora_config: training all weights takes {needed:.1f} GB here and {free:.1f} GB are free; "
            "ask for a LoRA rank, or a smaller base model"
        )


class CopyWontFit(CallerError):
    """Samples of a run of all weights need a model of their own. Facts: the bytes it takes, and those that are free."""

    servers_fault = True

    def __init__(self, needed_bytes: int, free_bytes: int) -> None:
        super().__init__(needed_bytes, free_bytes)

    def __str__(self) -> str:
        needed, free = (each / 1e9 for each in self.args)
        return (
            f"model_path: a run of all weights is sampled from a model of its own, which takes {needed:.1f} GB here, "
            f"and {free:.1f} GB are free"
        )
