"""The ops of a batch of rollouts, group by group: a sample, a judge asked about it, and the reward of both. Pure.

Ids follow from the batch's. A judge's ops have an owner of their own, so that they take turns in line with the batch's
samples and do not wait for all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from openrl.domain.ids import BatchId, OpId, SamplerId, TenantId
from openrl.domain.judge import AskJudge
from openrl.domain.op import Bell, Op, RewardOp, SampleOp
from openrl.domain.rollout import After, OnFailure, RewardPart, RollOut, ScoreGroup
from openrl.wire.judge import NAME as JUDGE
from openrl.wire.rollouts import PromptChoice
from queues.lanes import bell_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """All that the groups of a batch are made of, each list in the order of the prompts."""

    tenant: TenantId
    batch: BatchId
    prompts: list[PromptChoice]
    rollouts: list[RollOut]
    questions: list[AskJudge]  #: none where no judge is asked
    rewards: tuple[RewardPart, ...]
    samples: int
    lanes: int
    trace: str = ""  #: of the request

    def ops(self) -> Iterator[tuple[Op, Bell]]:
        for rollout in self.rollouts:
            yield from self._group(rollout)

    def _group(self, rollout: RollOut) -> Iterator[tuple[Op, Bell]]:
        sample = self._sample(rollout.number, rollout)
        yield sample, bell_of(sample, model=rollout.base_model, lanes=self.lanes, trace=self.trace)
        members = [sample.id]
        if self.questions:
            judge = self._judge(rollout.number, sample.id)
            yield judge, bell_of(judge, model=judge.action.base_model, lanes=self.lanes, trace=self.trace)
            members.append(judge.id)
        reward = self._reward(rollout.number, tuple(members))
        yield reward, bell_of(reward, model="", lanes=self.lanes, trace=self.trace)

    def _sample(self, number: int, action: RollOut) -> SampleOp:
        return SampleOp(
            id=sample_id(self.batch, number),
            tenant=self.tenant,
            sampler=SamplerId(self.batch),
            number=number,
            action=action,
            batch=self.batch,
        )

    def _judge(self, number: int, sample: OpId) -> SampleOp:
        """Where nothing was sampled there is nothing to ask."""
        return SampleOp(
            id=judge_id(self.batch, number),
            tenant=self.tenant,
            sampler=judge_owner(self.batch),
            number=number,
            action=self.questions[number],
            after=After(ops=(sample,), on_failure=OnFailure.FAIL),
            batch=self.batch,
        )

    def _reward(self, number: int, members: tuple[OpId, ...]) -> RewardOp:
        rewards = tuple(
            replace(part, answers=judge_id(self.batch, number)) if part.name == JUDGE else part for part in self.rewards
        )
        prompt = self.prompts[number]
        return RewardOp(
            id=reward_id(self.batch, number),
            tenant=self.tenant,
            action=ScoreGroup(of=members[0], samples=self.samples, rewards=rewards, context=prompt.context),
            after=After(ops=members, on_failure=OnFailure.RUN),
            batch=self.batch,
            label=prompt.id,
        )


def sample_id(batch: BatchId, number: int) -> OpId:
    return OpId(f"{batch}.{number}.sample")


def judge_id(batch: BatchId, number: int) -> OpId:
    return OpId(f"{batch}.{number}.judge")


def reward_id(batch: BatchId, number: int) -> OpId:
    return OpId(f"{batch}.{number}.reward")


def number_of(op: OpId) -> int:
    """Of its group in the batch."""
    return int(op.split(".")[-2])


def judge_owner(batch: BatchId) -> SamplerId:
    return SamplerId(f"{batch}.judge")
