"""Batches of rollouts: asked for, read as they finish, called off. Blocking; `async_rollouts` is the same without."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from openrl.client.datums import to_datums
from openrl.client.groups import BatchState, Group
from openrl.client.request import OnFailure, PolicyLike, PolicyNames, PromptLike, RewardLike, request_fields
from openrl.client.transport import Transport
from openrl.client.watch import watching

if TYPE_CHECKING:
    import tinker

PATH: Final = "/openrl/v1/rollouts"


class Batch:
    """A batch on the server. It goes on whether or not somebody reads it, and is kept for a day after its end."""

    def __init__(self, transport: Transport, batch_id: str, progress: bool | None) -> None:
        self.id = batch_id
        self._transport, self._progress = transport, progress
        self._path = f"{PATH}/{batch_id}"
        self._results: list[Group] | None = None

    def __iter__(self) -> Iterator[Group]:
        """Its groups from the first on, each once, as they finish; broken connections are not noticed. At the end
        raises BatchFailed where the batch was to fail with its first loss and did."""
        with watching(self.id, self._progress) as watch:
            if watch.shown:
                watch.tell(self.state())
            with closing(self._transport.events(f"{self._path}/events")) as events:
                for event in events:
                    if (group := watch.group(event)) is not None:
                        yield group
                    elif watch.asks(event):
                        watch.tell(self.state())

    def results(self) -> list[Group]:
        """All groups, in the order of the prompts, once the last is there."""
        if self._results is None:
            self._results = sorted(self, key=lambda group: group.index)
        return list(self._results)

    def datums(self, **options: Any) -> "list[tinker.Datum]":
        """`to_datums` of its results."""
        return to_datums(self.results(), **options)

    def state(self) -> BatchState:
        return BatchState.of(self._transport.send("GET", self._path))

    def cancel(self) -> BatchState:
        """Call off what has not finished; what has stays."""
        return BatchState.of(self._transport.send("POST", f"{self._path}/cancel"))

    def __repr__(self) -> str:
        return f"Batch({self.id!r})"


class Rollouts:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        prompts: Iterable[PromptLike],
        policy: PolicyLike | None = None,
        *,
        group_size: int,
        sampling: object,
        reward: RewardLike | Sequence[RewardLike],
        on_failure: OnFailure = "drop",
        base_model: str | None = None,
        path: str | None = None,
        sampler: str | None = None,
        run: str | None = None,
        key: str | None = None,
        progress: bool | None = None,
    ) -> Batch:
        """Have `group_size` rollouts of each prompt sampled and scored.

        `policy` is a tinker SamplingClient or TrainingClient (its newest saved version), a `tinker://` path, the id of
        a run, or a base model; `base_model`, `path`, `sampler` and `run` say the same by name. `sampling` is a dict (at
        least `max_tokens`) or a tinker SamplingParams. `reward` is a reward function's name, or a list of names,
        `(name, weight, params)` and `Reward`s, whose weighted sum it is. A rollout that cannot be had is dropped and
        counted, or with `on_failure="fail"` ends the batch. A request with the `key` of an earlier one is the same
        batch. `progress` shows a bar or not; by default it does where somebody sees it.

        Raises RequestRefused naming the field, ServiceUnreachable."""
        names = PolicyNames(base_model=base_model, path=path, sampler=sampler, run=run)
        request = request_fields(
            prompts,
            policy=names.fields(policy),
            group_size=group_size,
            sampling=sampling,
            reward=reward,
            on_failure=on_failure,
            key=key,
        )
        answer = self._transport.send("POST", PATH, json=request)
        return Batch(self._transport, answer["batch_id"], progress)

    def attach(self, batch_id: str, *, progress: bool | None = None) -> Batch:
        """A batch created before, by any process of this tenant. Raises RequestRefused where there is none."""
        batch = Batch(self._transport, batch_id, progress)
        batch.state()
        return batch
