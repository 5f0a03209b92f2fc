"""Prompts are computed, a bounded part of them between two decode steps, and their samples draw their first tokens.

What a prompt begins with is copied from a strand in the cache where there is one, or waited for where another prompt is
computing it. Knows no admission.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from workers.model.base import BaseModel
from workers.model.finite import all_finite
from workers.sample.torch.admission import passes, shares
from workers.sample.torch.cache import Span
from workers.sample.torch.decoding import Decoding
from workers.sample.torch.drawing import weights_give_nonsense
from workers.sample.torch.logits import Draw, Drawn
from workers.sample.torch.prompt_logprobs import Scoring
from workers.sample.torch.prompt_pass import PromptPass
from workers.sample.torch.rows import Job, PrefixKey, Row
from workers.sample.torch.starts import Start
from workers.sample.torch.strands import LEAST, Strand
from workers.sample.torch.table import Table

SEEN_CELLS = 1 << 17  #: cells that one pass may look at, as each layer gathers them


class Starting:
    def __init__(self, base: BaseModel, table: Table, prompt_pass: PromptPass, decoding: Decoding) -> None:
        self.prompt_tokens = self.prompt_tokens_reused = 0
        self._base, self._table, self._pass, self._decoding = base, table, prompt_pass, decoding
        self._starts: dict[Start, None] = {}  #: the oldest in front
        self._by_prefix: dict[PrefixKey, Start] = {}

    def __iter__(self) -> Iterator[Start]:
        return iter(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    # --------------------------------------------------------------------------------------------- who is there
    def of(self, job: Job) -> Start | None:
        """The start that a request's samples can share."""
        start = self._by_prefix.get(job.prefix)
        return start if start is not None and start.takes(job) else None

    def add(self, job: Job, count: int, *, kept: bool) -> Start:
        """Start so many samples of a request, or only score its prompt; `kept` promises them rows of the cache."""
        start = self.of(job)
        if start is None or (kept and not start.kept):
            start = Start(Strand(job.request.policy, job.tokens), job.prefix, kept, {job: count})
            self._starts[start] = None
            self._by_prefix[job.prefix] = start
            self._try_begin(start)
            return start
        start.jobs[job] = start.jobs.get(job, 0) + count
        self._promise(start)
        return start

    def drop_over(self) -> None:
        """Forget the requests that nobody waits for any more."""
        for start in [start for start in self._starts if any(job.over for job in start.jobs)]:
            start.jobs = {job: count for job, count in start.jobs.items() if not job.over}
            if start.jobs:
                self._promise(start)
            else:
                self._abandon(start)

    def _promise(self, start: Start) -> None:
        if start.begun and start.kept:
            self._table.promise(start.strand, start.rows)

    def _abandon(self, start: Start) -> None:
        self._forget(start)
        self._table.abandon(start.strand)

    def _forget(self, start: Start) -> None:
        del self._starts[start]
        if self._by_prefix.get(start.prefix) is start:
            del self._by_prefix[start.prefix]

    def _fail(self, start: Start, error: Exception) -> None:
        for job in start.jobs:
            job.fail(error)
        self._abandon(start)

    # ---------------------------------------------------------------------------------------------- beginnings
    def _try_begin(self, start: Start) -> bool:
        """Give a start its place, unless what it begins with is still being computed. Whether it has begun."""
        if start.begun or self._awaits(start):
            return start.begun
        try:
            self._begin(start)
        except Exception as error:
            self._fail(start, error)
        return start.begun

    def _awaits(self, start: Start) -> bool:
        leader = start.leader
        return leader is not None and leader.place >= 0 and leader.length < start.common

    def _begin(self, start: Start) -> None:
        strand, start.leader, start.common = start.strand, None, 0
        if start.kept:
            source, common = (None, 0) if start.alone else self._source(start)
            if source is not None and source.length < common:
                start.leader, start.common = source, common
                return
            self._table.begin(strand, start.rows, source, common)
            if source is not None and strand.filled == len(strand.prompt):
                strand.last = source.last
        self.prompt_tokens_reused += strand.filled
        start.begun = True

    def _source(self, start: Start) -> tuple[Strand | None, int]:
        """A strand that has what the prompt begins with, and how much of it can be used."""
        strand, needed = start.strand, start.needed
        source, common = self._table.nearest(strand.policy, strand.prompt)
        if source is None:
            return None, 0
        length = len(strand.prompt)
        unscored = all(job.scoring is None for job in start.jobs)
        if unscored and common == length == len(source.prompt) and source.last is not None:
            return source, length
        common = min(common, needed)
        return (source, common) if common >= LEAST else (None, 0)

    # ------------------------------------------------------------------------------------------------- parts
    def advance(self, budget: int) -> None:
        """Compute at most so many prompt tokens, but the oldest prompt's next part in any case."""
        while budget > 0:
            begun = [start for start in list(self._starts) if self._try_begin(start)]
            spans = self._spans([start for start in begun if start.left], budget)
            starts = list(spans)
            for start in starts:
                if start.alone:
                    self._guarded([start], spans)
            starts = [start for start in starts if not start.alone]
            for group in _grouped([spans[start] for start in starts], budget):
                self._guarded([starts[index] for index in group], spans)
            budget -= sum(map(len, spans.values()))
            done = [start for start in begun if start in self._starts and not start.left]
            for start in done:
                if start.alone:
                    self._finish({start: _rows(start)})
            others = {start: _rows(start) for start in done if not start.alone}
            if others:
                self._finish(others)
            if not (spans or done):
                return

    def _spans(self, starts: Sequence[Start], budget: int) -> dict[Start, Span]:
        given = shares([start.left for start in starts], budget)
        spans: dict[Start, Span] = {}
        for start, tokens in zip(starts, given, strict=True):
            filled, part = start.strand.filled, start.part(tokens, due=start is starts[0])
            if part:
                spans[start] = Span(start.strand.place if start.kept else None, filled, filled + part)
        return spans

    def _guarded(self, starts: list[Start], spans: dict[Start, Span]) -> None:
        """Compute parts of prompts together; where that fails, each alone, so that only the one at fault fails."""
        try:
            hidden = self._pass([start.strand for start in starts], [spans[start] for start in starts])
        except Exception as error:
            if len(starts) == 1:
                self._fail(starts[0], error)
                return
            for start in starts:
                self._guarded([start], spans)
            return
        for start, states in zip(starts, hidden, strict=True):
            self._computed(start, spans[start], states[: len(spans[start])])

    def _computed(self, start: Start, span: Span, states: Tensor) -> None:
        """A part has been computed: its hidden states are [span, width]."""
        self.prompt_tokens += len(span)
        start.strand.filled = span.end
        if not all_finite(states):
            self._fail(start, weights_give_nonsense())
            return
        for job in start.jobs:
            scoring = job.scoring
            if scoring is not None and not job.over:
                self._score(job, scoring, span.start, states)
        if not start.left:
            start.strand.last = states[-1].clone()

    def _score(self, job: Job, scoring: Scoring, start: int, states: Tensor) -> None:
        def head(some: Tensor) -> Tensor:
            return self._pass.head(some[None], [job.request.policy])[0]

        try:
            job.scores = scoring.take(start, states, head, self._base.vocab_size)
        except Exception as error:
            job.fail(error)

    # ------------------------------------------------------------------------------------------ first tokens
    def _finish(self, rows: dict[Start, list[Row]]) -> None:
        """Draw the first tokens of computed prompts' samples; where that fails, each prompt's alone."""
        try:
            drawn = self._draw(rows)
        except Exception as error:
            if len(rows) == 1:
                self._fail(next(iter(rows)), error)
                return
            for start, mine in rows.items():
                self._finish({start: mine})
            return
        for start, mine in rows.items():
            self._leave(start, [row for row in mine if row.stays])
        if drawn is not None:
            self._decoding.begin([row for mine in rows.values() for row in mine], drawn)
        for job in [job for start in rows for job in start.jobs]:
            job.settle()

    def _draw(self, rows: dict[Start, list[Row]]) -> Drawn | None:
        each = [row for mine in rows.values() for row in mine]
        if not each:
            return None
        last = torch.stack([start.strand.last for start in rows if start.strand.last is not None])
        logits = self._pass.head(last, [start.strand.policy for start in rows])
        source = [index for index, mine in enumerate(rows.values()) for _ in mine]
        return Draw([row.choice for row in each], last.device)(
            logits[torch.tensor(source, device=last.device)], [0] * len(each)
        )

    def _leave(self, start: Start, staying: list[Row]) -> None:
        """The samples go on in the batch; what nobody goes on with stays at rest."""
        try:
            if staying:
                self._table.place(start.strand, staying)
            else:
                self._table.rest(start.strand)
        except Exception as error:
            self._fail(start, error)
        else:
            self._forget(start)


def _rows(start: Start) -> list[Row]:
    """The samples to start."""
    return [job.row(start.strand) for job, count in start.jobs.items() if not job.over for _ in range(count)]


def _grouped(spans: Sequence[Span], budget: int) -> list[list[int]]:
    """Spans that share a pass, by index: of similar length, and beginnings apart from others, as these need no mask."""
    groups = []
    fresh = [index for index, span in enumerate(spans) if not span.start]
    later = [index for index, span in enumerate(spans) if span.start]
    near = [[later[place] for place in group] for group in passes([spans[index].end for index in later], SEEN_CELLS)]
    for some in [fresh, *near]:
        for group in passes([len(spans[index]) for index in some], budget):
            groups.append(sorted(some[place] for place in group))
    return groups
