"""Which prompts have to be computed, which are copied from rows that hold them, and which requests share one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from openrl.domain.ids import DepotKey
from workers.sample.torch.rows import Job, PrefixKey


@dataclass(slots=True)
class Prompt:
    """One prompt to compute, or to copy from a row that has it, and the samples that start from it."""

    jobs: list[tuple[Job, int]] = field(default_factory=list)  #: with the number of samples to start now
    source: int | None = None  #: row in the cache that holds it

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.jobs[0][0].request.prompt

    @property
    def seeded(self) -> bool:
        return self.jobs[0][0].request.seeded

    @property
    def policy(self) -> DepotKey | None:
        return self.jobs[0][0].request.policy


def by_prompt(started: Iterable[tuple[Job, int]], live: Mapping[PrefixKey, int]) -> list[Prompt]:
    """Requests with the same policy and prompt share one computation; one that a row in `live` holds is copied, unless
    the prompt itself is to be scored."""
    prompts: dict[tuple[PrefixKey, bool], Prompt] = {}
    for job, count in started:
        copied = job.prefix in live and job.scores is not None
        source = live[job.prefix] if copied else None
        prompts.setdefault((job.prefix, copied), Prompt(source=source)).jobs.append((job, count))
    return list(prompts.values())
