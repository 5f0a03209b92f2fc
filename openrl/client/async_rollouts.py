"""`rollouts`, without blocking."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from openrl.client.datums import to_datums
from openrl.client.groups import BatchState, Group
from openrl.client.request import OnFailure, PolicyLike, PolicyNames, PromptLike, RewardLike, request_fields
from openrl.client.rollouts import PATH
from openrl.client.transport import AsyncTransport
from openrl.client.watch import watching

if TYPE_CHECKING:
    import tinker


class AsyncBatch:
    """`Batch`, without blocking: read with `async for`."""

    def __init__(self, transport: AsyncTransport, batch_id: str, progress: bool | None) -> None:
        self.id = batch_id
        self._transport, self._progress = transport, progress
        self._path = f"{PATH}/{batch_id}"
        self._results: list[Group] | None = None

    async def __aiter__(self) -> AsyncIterator[Group]:
        with watching(self.id, self._progress) as watch:
            if watch.shown:
                watch.tell(await self.state())
            async with aclosing(self._transport.events(f"{self._path}/events")) as events:
                async for event in events:
                    if (group := watch.group(event)) is not None:
                        yield group
                    elif watch.asks(event):
                        watch.tell(await self.state())

    async def results(self) -> list[Group]:
        if self._results is None:
            self._results = sorted([group async for group in self], key=lambda group: group.index)
        return list(self._results)

    async def datums(self, **options: Any) -> "list[tinker.Datum]":
        return to_datums(await self.results(), **options)

    async def state(self) -> BatchState:
        return BatchState.of(await self._transport.send("GET", self._path))

    async def cancel(self) -> BatchState:
        return BatchState.of(await self._transport.send("POST", f"{self._path}/cancel"))

    def __repr__(self) -> str:
        return f"AsyncBatch({self.id!r})"


class AsyncRollouts:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
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
    ) -> AsyncBatch:
        """As `Rollouts.create`."""
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
        answer = await self._transport.send("POST", PATH, json=request)
        return AsyncBatch(self._transport, answer["batch_id"], progress)

    async def attach(self, batch_id: str, *, progress: bool | None = None) -> AsyncBatch:
        batch = AsyncBatch(self._transport, batch_id, progress)
        await batch.state()
        return batch
