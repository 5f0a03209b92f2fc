"""A prompt on its way to its first token, and the samples that start from it."""

from dataclasses import dataclass

from workers.sample.torch.rows import Job, PrefixKey
from workers.sample.torch.strands import Strand

#: Tokens of the parts in which a prompt is computed whose bits must follow from itself.
PART = 256


@dataclass(slots=True, eq=False)
class Start:
    """`jobs` have the same policy and prompt, and so many samples each to start."""

    strand: Strand
    prefix: PrefixKey
    kept: bool  #: has, or will have, a row in the cache
    jobs: dict[Job, int]
    begun: bool = False  #: nothing it begins with is waited for
    leader: Strand | None = None  #: is computing what this one begins with
    common: int = 0  #: tokens that the leader computes for it

    @property
    def alone(self) -> bool:
        """Whether it is computed from its first token and by itself, so that its bits follow from the prompt."""
        return any(job.request.seeded for job in self.jobs)

    @property
    def left(self) -> int:
        """Tokens to compute."""
        return len(self.strand.prompt) - max(self.strand.filled, self.common)

    def part(self, tokens: int, *, due: bool) -> int:
        """How many tokens go now, where so many may and `due` says that some must: any number, but all at once without
        a row, and parts of PART alone."""
        if self.kept and not self.alone:
            return tokens
        least = min(self.left, PART) if self.kept else self.left
        return least if due or tokens >= least else 0

    @property
    def needed(self) -> int:
        """The first position whose hidden state is needed."""
        return min(job.needed for job in self.jobs)

    @property
    def rows(self) -> int:
        """Rows of the cache that it is promised."""
        return max(int(self.kept), sum(count for job, count in self.jobs.items() if job.request.cells))

    @property
    def cells(self) -> int:
        """Tokens that the longest of these rows may come to hold."""
        return max(len(self.strand.prompt), *(job.request.cells for job in self.jobs)) if self.kept else 0

    def takes(self, job: Job) -> bool:
        """Whether one more request can share what is left to compute."""
        return self.strand.filled <= job.needed or job in self.jobs
