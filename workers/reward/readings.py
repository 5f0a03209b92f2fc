"""What the reward functions of a group look at: of each rollout its text, or what a judge said of it, or why there is
nothing to be scored. Pure but for reading the ledger.
"""

import json
from collections.abc import Callable, Iterable

from openrl.domain.errors import OpNotFound
from openrl.domain.ids import OpId
from openrl.domain.judge import Judged
from openrl.domain.outcome import Record
from openrl.domain.rollout import Dropped, RewardPart

Read = Callable[[OpId], Record | None]
Reading = str | Dropped


def readings(rewards: Iterable[RewardPart], texts: tuple[str, ...], read: Read) -> list[list[Reading]]:
    """For each reward function, what it scores of each rollout. Raises OpNotFound where a judge's op is gone."""
    return [list(texts) if reward.answers is None else _answers(reward, len(texts), read) for reward in rewards]


def _answers(reward: RewardPart, samples: int, read: Read) -> list[Reading]:
    assert reward.answers is not None
    record = read(reward.answers)
    if record is None:
        raise OpNotFound(reward.answers)
    if not isinstance(record.result, Judged):
        failure = record.failure
        assert failure is not None, f"{record.id} is {record.status} without answers"
        why = f"{reward.name}: {failure.message}"
        return [Dropped(sample=sample, error=failure.error, reason=why) for sample in range(samples)]
    said: dict[int, Reading] = {each.sample: json.dumps(each.texts) for each in record.result.answers}
    lost = {each.sample: _named(reward, each) for each in record.result.dropped}
    return [(said | lost)[sample] for sample in range(samples)]


def _named(reward: RewardPart, dropped: Dropped) -> Dropped:
    return Dropped(sample=dropped.sample, error=dropped.error, reason=f"{reward.name}: {dropped.reason}")
