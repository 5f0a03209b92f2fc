"""Requests and samples on their way through the engine, and the result they become."""

from collections.abc import Sequence as Many
from concurrent.futures import Future, InvalidStateError

import numpy as np
import torch
from torch import Tensor

from openrl.domain.ids import DepotKey, SamplerId, TenantId
from openrl.domain.sampling import SampleResult, Sequence, StopReason, TopLogprobs
from openrl.domain.stretch import Owner
from workers.sample.randomness import stream
from workers.sample.request import SampleRequest
from workers.sample.results import PromptScores, result, sequence, top_logprobs
from workers.sample.stopping import Decode, Stopper
from workers.sample.torch.logits import Choice
from workers.sample.torch.prompt_logprobs import Scoring
from workers.sample.torch.strands import Strand, Tokens

#: Policy, tokens, and whether computed alone, as requests with a seed are.
PrefixKey = tuple[DepotKey | None, bytes, bool]


class Job:
    """One request: its samples are admitted, at once or by and by, and the future settles when all have ended."""

    def __init__(self, request: SampleRequest, decode: Decode, eos: tuple[int, ...]) -> None:
        self.request = request
        self.owner = Owner(TenantId(request.tenant), SamplerId(request.sampler))
        self.future: Future[SampleResult] = Future()
        self.tokens: Tokens = np.array(request.prompt, np.int32)
        self.prefix: PrefixKey = (request.policy, self.tokens.tobytes(), request.seeded)
        self.holds_policy = False
        self.passed = 0  #: rounds in which others were admitted before it as there was no room for it
        self.admitted = 0  #: samples
        self._scoring: Scoring | None = None
        self.scores: PromptScores | None = None if request.scores_prompt else PromptScores()
        self._begun = 0  #: samples
        self._decode, self._eos = decode, eos
        empty = None if request.params.max_tokens else _nothing(request)
        self._sequences: list[Sequence | None] = [empty] * request.num_samples

    @property
    def unadmitted(self) -> int:
        """Samples that wait for admission."""
        return self.request.num_samples - self.admitted if self.request.params.max_tokens else 0

    @property
    def scoring(self) -> Scoring | None:
        """What scores its prompt, until that is done."""
        if self.scores is None and self._scoring is None:
            self._scoring = Scoring(self.request)
        return self._scoring if self.scores is None else None

    @property
    def needed(self) -> int:
        """The first position of the prompt whose hidden state is needed."""
        scoring = self.scoring
        return len(self.tokens) - 1 if scoring is None else scoring.first

    @property
    def over(self) -> bool:
        """Whether nobody waits for it any more: it was settled or cancelled."""
        return self.future.done()

    def row(self, strand: Strand) -> "Row":
        """Begin the next sample."""
        self._begun += 1
        return Row(self, self._begun - 1, Stopper(self.request.params, self._eos, self._decode), strand)

    def ended(self, sample: int, sequence: Sequence) -> None:
        self._sequences[sample] = sequence

    def settle(self) -> bool:
        """Give the result if it is whole."""
        done = [sequence for sequence in self._sequences if sequence is not None]
        if self.scores is None or len(done) < len(self._sequences):
            return False
        try:
            self.future.set_result(result(done, self.scores))
        except InvalidStateError:  # cancelled in this moment
            return True
        return True

    def fail(self, error: BaseException) -> None:
        try:
            self.future.set_exception(error)
        except InvalidStateError:  # cancelled, or failed by another of its rows
            return


class Row:
    """One sample being drawn."""

    def __init__(self, job: Job, sample: int, stopper: Stopper, strand: Strand) -> None:
        params = job.request.params
        self.job, self.sample, self.stopper = job, sample, stopper
        self.strand = strand  #: where its keys and values are
        self.spoilt = False  #: they may not be finite
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.top: list[tuple[Tensor, Tensor]] = []  #: ids and log-probabilities, each [k]
        self.choice = Choice(
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            stream=stream(params.seed, sample),
            seeded=params.seed is not None,
            top_logprobs=job.request.topk_sample_logprobs,
        )

    @property
    def policy(self) -> DepotKey | None:
        return self.job.request.policy

    @property
    def stays(self) -> bool:
        """Whether it has a place in the batch: a sample of one token has none."""
        return self.job.request.cells > 0

    @property
    def position(self) -> int:
        """Where the last token stands, which is the next to be fed."""
        return len(self.job.request.prompt) + len(self.tokens) - 1

    def take(self, token: int, logprob: float) -> StopReason | None:
        """Add a token; why the sample ends with it, or None."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        return self.stopper(self.tokens)

    def end(self, reason: StopReason) -> None:
        top = _stacked(self.choice.top_logprobs, self.top)
        self.job.ended(self.sample, sequence(self.tokens, self.logprobs, reason, top))


def take_top(rows: Many[Row], ids: Tensor, values: Tensor) -> None:
    """Give each row that asked its likeliest tokens and their log-probabilities, from [n, k]."""
    for index, row in enumerate(rows):
        width = row.choice.top_logprobs
        if width:
            row.top.append((ids[index, :width], values[index, :width]))


def _nothing(request: SampleRequest) -> Sequence:
    """The sample of a request for no tokens at all."""
    return sequence([], [], StopReason.LENGTH, _stacked(request.topk_sample_logprobs, []))


def _stacked(width: int, top: Many[tuple[Tensor, Tensor]]) -> TopLogprobs | None:
    """From ids and log-probabilities [width] of each token; None where none were asked for."""
    if not width:
        return None
    if not top:
        return top_logprobs(torch.zeros((0, width), dtype=torch.int64), torch.zeros((0, width)))
    return top_logprobs(torch.stack([ids for ids, _ in top]), torch.stack([values for _, values in top]))
