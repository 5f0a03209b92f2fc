"""Whatever happens in whatever order: both ledgers agree at every step, and both keep the promises.

The machine knows the promises in their plainest form (who is unsettled, which turn a run has come to) and checks them
after each step. It never looks inside a ledger.
"""

import time
from collections import Counter, defaultdict

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from twins import answer

from openrl.domain.errors import ClaimLost, EngineBusy, OpCancelled, TooManyWaiting, TurnPassed
from openrl.domain.ids import OpId, RunId, TenantId
from openrl.domain.op import SETTLED, Bell, OptimStep, Status, TrainOp
from openrl.domain.outcome import StepResult, failure_of
from openrl.domain.run import AdamParams
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.port import Limits
from openrl.ledger.redis import RedisLedger

LIMITS = Limits(
    hold_seconds=15.0, gap_seconds=120.0, ring_again_seconds=5.0, max_waiting_per_tenant=6, keep_seconds=1000.0
)
RESULT = StepResult(metrics={"loss:sum": 1.0})
FAILURE = failure_of(EngineBusy("no"))
ACTION = OptimStep(adam=AdamParams())

#: No sum of a few is a whole number of seconds, which the two clocks might see from either side.
PAUSES = (4.1003, 6.3017, 16.7029, 125.9041, 1101.3057)

runs = st.sampled_from(["a", "b"]).map(RunId)
turns = st.integers(0, 6)


def tenant_of(run: RunId) -> TenantId:
    return TenantId(f"tenant-of-{run}")


class Twins:
    """A ledger in memory and one in Redis, asked the same and compared."""

    def __init__(self, client) -> None:
        client.flushall()
        self.now = float(int(time.time())) + 1000.0
        self.rung: tuple[list[OpId], list[OpId]] = ([], [])
        self.ledgers = (
            MemoryLedger(lambda bell: self.rung[0].append(bell.op), limits=LIMITS, clock=lambda: self.now),
            RedisLedger(
                client,
                {},
                lambda bell: self.rung[1].append(bell.op),
                holder="h",
                limits=LIMITS,
                clock_offset=lambda: self.now - time.time(),
            ),
        )

    def ask(self, verb: str, *args, **kwargs):
        answers = [answer(ledger, verb, args, kwargs) for ledger in self.ledgers]
        assert answers[0] == answers[1], verb
        assert Counter(self.rung[0]) == Counter(self.rung[1]), verb
        if isinstance(answers[0], tuple) and isinstance(answers[0][0], type):
            raise answers[0][0](*answers[0][1])
        return answers[0]


class Histories(RuleBasedStateMachine):
    ops = Bundle("ops")
    claims = Bundle("claims")

    def __init__(self, client) -> None:
        super().__init__()
        self.twins = Twins(client)
        self.at: dict[tuple[RunId, int], OpId] = {}
        self.op: dict[OpId, TrainOp] = {}
        self.settled: dict[OpId, Status] = {}
        self.started: dict[RunId, list[int]] = defaultdict(list)
        self.epochs: dict[OpId, int] = defaultdict(int)

    def unsettled(self, run: RunId) -> list[OpId]:
        return [op_id for op_id, op in self.op.items() if op.run == run and op_id not in self.settled]

    def note_settled(self, op_id: OpId, status: Status) -> None:
        assert op_id not in self.settled, "settled twice"
        self.settled[op_id] = status

    # ---------------------------------------------------------------------------------------- what may happen
    @rule(target=ops, run=runs, turn=turns)
    def append(self, run, turn):
        op = TrainOp(id=OpId(f"{run}{turn}-{len(self.op)}"), tenant=tenant_of(run), run=run, turn=turn, action=ACTION)
        known = self.at.get((run, turn))
        if known is not None and self.twins.ask("read", known) is None:
            known = None  # forgotten; its turn stays passed
        try:
            first = self.twins.ask("append", op, Bell(op=op.id, queue="q", task="t", summary="s"))
        except TurnPassed:
            assert known is None
            return OpId("refused")
        except TooManyWaiting:
            assert known is None
            assert len(self.unsettled(run)) >= LIMITS.max_waiting_per_tenant
            return OpId("refused")
        assert first == (known or op.id), "a resend gets the first op"
        if known is None:
            self.at[run, turn], self.op[first] = first, op
        return first

    @rule(run=runs, turn=turns)
    def skip(self, run, turn):
        self.twins.ask("skip", run, turn)

    @rule(target=claims, back=st.integers(0, 2))
    def answer_a_bell(self, back):
        rung = self.twins.rung[0]
        return self.claim_op(rung[-1 - back]) if len(rung) > back else None

    @rule(target=claims, op_id=ops)
    def claim(self, op_id):
        return self.claim_op(op_id)

    def claim_op(self, op_id):
        held = self.twins.ask("claim", op_id)
        if held is None:
            self.look(op_id)
            return None
        self.started[held.op.run].append(held.op.turn)
        assert held.op == self.op[op_id]
        assert op_id not in self.settled
        assert all(op_id == other or self.op[other].turn > held.op.turn for other in self.unsettled(held.op.run))
        assert held.epoch > self.epochs[op_id], "an epoch is never used again"
        self.epochs[op_id] = held.epoch
        return held

    def look(self, op_id):
        """A claim or a sweep may have given an op up."""
        record = self.twins.ask("read", op_id)
        if record is not None and op_id not in self.settled and record.status in SETTLED:
            assert record.failure.error == "WornOut"
            assert record.attempts >= LIMITS.max_attempts
            self.note_settled(op_id, record.status)

    @rule(held=consumes(claims), well=st.booleans())
    def settle(self, held, well):
        if held is None:
            return
        try:
            self.twins.ask("done" if well else "failed", held, RESULT if well else FAILURE)
        except ClaimLost:
            record = self.twins.ask("read", held.op.id)
            assert record is None or record.status is not Status.HELD or self.epochs[held.op.id] > held.epoch
            return
        assert self.epochs[held.op.id] == held.epoch, "a stale epoch settled"
        self.note_settled(held.op.id, Status.DONE if well else Status.FAILED)

    @rule(held=claims, counts=st.booleans())
    def give_back(self, held, counts):
        if held is not None:
            try:
                self.twins.ask("give_back", held, counts=counts)
            except ClaimLost:
                return
            assert self.epochs[held.op.id] == held.epoch

    @rule(held=claims)
    def renew(self, held):
        if held is not None:
            lost = self.twins.ask("renew", [held])
            assert held.op.id in lost or (self.epochs[held.op.id] == held.epoch and held.op.id not in self.settled)

    @rule(run=runs)
    def release(self, run):
        held = any(self.twins.ask("read", op_id).status is Status.HELD for op_id in self.unsettled(run))
        assert not (self.twins.ask("release", [run]) and held)

    @rule(takes=st.sampled_from(["", "q"]))
    def stay(self, takes):
        self.twins.ask("stay", takes)

    @rule()
    def leave(self):
        self.twins.ask("leave")

    @rule(op_id=ops)
    def cancel(self, op_id):
        before = self.twins.ask("read", op_id)
        self.twins.ask("cancel", op_id, OpCancelled())
        if before is not None and before.status not in SETTLED:
            self.note_settled(op_id, Status.FAILED)

    @rule(seconds=st.sampled_from(PAUSES))
    def time_goes_by_and_someone_sweeps(self, seconds):
        self.twins.now += seconds
        self.twins.ask("sweep")
        for op_id in self.op:
            self.look(op_id)

    # ---------------------------------------------------------------------------------------- what always holds
    @invariant()
    def waiting_is_exact(self):
        for run in ("a", "b"):
            assert self.twins.ask("waiting", tenant_of(run)) == len(self.unsettled(run))

    @invariant()
    def turns_start_in_order(self):
        for started in self.started.values():
            assert started == sorted(started)

    @invariant()
    def ops_read_as_they_are(self):
        found = self.twins.ask("statuses", list(self.op))
        for op_id in self.op:
            if op_id in self.settled:
                assert found.get(op_id, self.settled[op_id]) == self.settled[op_id]
            else:
                assert found[op_id] not in SETTLED

    def teardown(self):
        """Nothing is lost: bells and sweeps alone bring everything to an end, though every holder died."""
        for _ in range(40):
            self.twins.now += 130.0071
            self.twins.ask("sweep")
            bells, self.twins.rung[0][:], self.twins.rung[1][:] = list(self.twins.rung[0]), [], []
            for op_id in dict.fromkeys(bells):
                self.look(op_id)
                if (held := self.twins.ask("claim", op_id)) is not None:
                    self.twins.ask("done", held, RESULT)
                    self.note_settled(op_id, Status.DONE)
                self.look(op_id)
            if all(not self.unsettled(run) for run in ("a", "b")):
                break
        for op_id in self.op:
            self.look(op_id)
        assert [op_id for op_id in self.op if op_id not in self.settled] == []


def test_any_history_keeps_the_promises(client):
    run_state_machine_as_test(
        lambda: Histories(client),
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
