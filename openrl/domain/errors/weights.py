"""Why weights cannot be read, written or changed."""

from openrl.domain.errors.branches import CallerError, PassingError


class CheckpointExists(CallerError):
    def __init__(self, path: str) -> None:
        super().__init__(path)

    def __str__(self) -> str:
        return f"path: {self.args[0]} exists already; choose another name or pass overwrite=True"


class AdapterUnsupported(CallerError):
    """Adapter files that cannot be computed with here. Facts: the file, key or setting, and what is wrong with it."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(what, problem)

    def __str__(self) -> str:
        return f"adapter {self.args[0]}: {self.args[1]}"


class WeightsUnsupported(CallerError):
    """Files of weights that do not fit the base model. Facts: the file or weight, and what is wrong with it."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(what, problem)

    def __str__(self) -> str:
        return f"weights {self.args[0]}: {self.args[1]}"


class GradientNotFinite(CallerError):
    """NaN or infinity in a gradient; the run's weights stayed as they were."""

    def __init__(self, where: str) -> None:
        super().__init__(where)

    def __str__(self) -> str:
        return (
            f"{self.args[0]}: the gradient is not finite; nothing was applied. Check advantages, logprobs and weights"
        )


class UpdateNotFinite(CallerError):
    """NaN or infinity in an optimizer's update; the run's weights and moments stayed as they were."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "optim_step: the update is not finite; nothing was applied. Check adam_params.learning_rate and eps"


class RunLost(CallerError):
    """The worker that held the run's weights is gone."""

    servers_fault = True

    def __init__(self, run: str) -> None:
        super().__init__(run)

    def __str__(self) -> str:
        return (
            f"model_id: the worker that held {self.args[0]} was lost together with its weights; "
            "go on from its last saved checkpoint with create_training_client_from_state_with_optimizer"
        )


class WeightsNotArrived(PassingError):
    def __init__(self, key: str) -> None:
        super().__init__(key)

    def __str__(self) -> str:
        return f"weights {self.args[0]} are not in the depot yet"
