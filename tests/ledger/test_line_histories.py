"""Whatever workers do, die of or forget: both ledgers ring the same ops, fairly, and none stands in line for ever.

The machine notes which op was rung first when, and knows the rules of a line in their plainest form. It never looks
inside a ledger.
"""

import time
from collections import Counter, defaultdict

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from twins import answer

from openrl.domain.errors import ClaimLost, EngineBusy, OpCancelled
from openrl.domain.ids import OpId, SamplerId, TenantId
from openrl.domain.op import SETTLED, Bell, Sample, SampleOp
from openrl.domain.outcome import StepResult, failure_of
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import DType, Tensor
from openrl.ledger.lines import bells_at_once
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.port import UNSERVED_SLOTS, Brings, Limits
from openrl.ledger.redis import RedisLedger

LIMITS = Limits(hold_seconds=15.0, ring_again_seconds=5.0, max_attempts=2)
RESULT = StepResult(metrics={})
FAILURE = failure_of(EngineBusy("no"))
LINE = "samples"
PROMPT = Tensor(dtype=DType.INT32, shape=(1,), data=bytes(4))
ACTION = Sample(base_model="m", policy=None, prompt=PROMPT, num_samples=1, params=SamplingParams(max_tokens=1))

#: No sum of a few is a whole number of seconds, which the two clocks might see from either side.
PAUSES = (4.1003, 6.3017, 16.7029)

Owner = tuple[str, str]  #: tenant, sampler

workers = st.sampled_from(["w", "v"])
tenants = st.sampled_from(["anna", "bert", "carl"])


class Order:
    """Who was rung since each that stands came or was rung last."""

    def __init__(self) -> None:
        self.passed: defaultdict[object, set[object]] = defaultdict(set)

    def rung(self, who: object, standing: set[object]) -> None:
        for other in standing - {who}:
            assert who not in self.passed[other], f"{who} had two turns while {other} stood"
            self.passed[other].add(who)
        self.passed.pop(who, None)
        for other in set(self.passed) - standing:
            del self.passed[other]


class Lines(RuleBasedStateMachine):
    ops = Bundle("ops")
    claims = Bundle("claims")

    def __init__(self, client) -> None:
        super().__init__()
        client.flushall()
        self.now = float(int(time.time())) + 1000.0
        self.heard: tuple[list[OpId], list[OpId]] = ([], [])
        self.bells: list[OpId] = []  #: on their way to a worker
        memory = MemoryLedger(self.ear(0), limits=LIMITS, clock=lambda: self.now)

        def redis_ledger(holder):
            return RedisLedger(
                client,
                {},
                self.ear(1),
                holder=holder,
                limits=LIMITS,
                clock_offset=lambda: self.now - time.time(),
            )

        self.ledgers = {name: (memory.seen_by(name), redis_ledger(name)) for name in ("gateway", "w", "v")}
        self.owner: dict[OpId, Owner] = {}
        self.standing: dict[OpId, Owner] = {}  #: in the order in which they came
        self.out: dict[OpId, str] = {}
        self.bells_out: set[OpId] = set()  #: of these, not claimed since they came out
        self.settled: set[OpId] = set()
        self.brought: dict[str, tuple[int, float]] = {}  #: slots, and until when
        self.turns_of_owners = Order()
        self.turns_of_tenants = Order()

    def ear(self, number: int):
        return lambda bell: self.heard[number].append(bell.op)

    # ---------------------------------------------------------------------------------------- asking both
    def ask(self, who: str, verb: str, *args, sweeps: bool = False, settles: OpId | None = None, **kwargs):
        answers = [answer(ledger, verb, args, kwargs) for ledger in self.ledgers[who]]
        assert answers[0] == answers[1], verb
        heard, others = (list(ears) for ears in self.heard)
        assert Counter(heard) == Counter(others), verb
        if not sweeps:
            assert [op for op in heard if op in self.standing] == [op for op in others if op in self.standing]
        self.heard[0].clear()
        self.heard[1].clear()
        if verb == "claim" and answers[0] is not None:
            self.bells_out.discard(answers[0].op.id)
        if settles is not None and not isinstance(answers[0], tuple):
            self.note_settled(settles)
        self.note_rung(others, in_order=not sweeps)
        self.bells += heard
        if isinstance(answers[0], tuple) and isinstance(answers[0][0], type):
            raise answers[0][0](*answers[0][1])
        return answers[0]

    def slots(self) -> int:
        return sum(slots for slots, until in self.brought.values() if until > self.now) or UNSERVED_SLOTS

    def may_ring(self, tenant: str) -> bool:
        few = Counter(self.out[op_id] for op_id in self.bells_out)[tenant] < bells_at_once(self.slots())
        return few and Counter(self.out.values())[tenant] < self.slots() - len(self.out)

    def note_settled(self, op_id: OpId) -> None:
        assert op_id not in self.settled, "settled twice"
        self.settled.add(op_id)
        self.standing.pop(op_id, None)
        self.out.pop(op_id, None)
        self.bells_out.discard(op_id)

    def note_rung(self, heard: list[OpId], *, in_order: bool) -> None:
        """`in_order` where nothing settled in between."""
        for op_id in heard:
            if op_id not in self.standing:
                continue
            tenant, _ = owner = self.standing[op_id]
            assert op_id == next(other for other, whose in self.standing.items() if whose == owner), "not in order"
            assert not in_order or self.may_ring(tenant), "over its threshold"
            of_tenant = {whose for whose in self.standing.values() if whose[0] == tenant}
            self.turns_of_owners.rung(owner, of_tenant)
            waiting = {whose[0] for whose in self.standing.values() if self.may_ring(whose[0])}
            if in_order:
                self.turns_of_tenants.rung(tenant, waiting | {tenant})
            else:
                self.turns_of_tenants = Order()
            del self.standing[op_id]
            self.out[op_id] = tenant
            self.bells_out.add(op_id)

    def look(self) -> None:
        """A sweep or a claim may have given ops up."""
        for op_id, status in self.ask("gateway", "statuses", [*self.standing, *self.out]).items():
            if status in SETTLED:
                assert self.ask("gateway", "read", op_id).failure.error == "WornOut" and op_id in self.out
                self.note_settled(op_id)

    # ---------------------------------------------------------------------------------------- what may happen
    @rule(target=ops, tenant=tenants, sampler=st.sampled_from(["x", "y"]), count=st.sampled_from([1, 2, 6, 20]))
    def append(self, tenant, sampler, count):
        for _ in range(count):
            number = len(self.owner)
            op_id = OpId(f"{tenant}-{sampler}-{number}")
            op = SampleOp(
                id=op_id,
                tenant=TenantId(tenant),
                sampler=SamplerId(f"{tenant}:{sampler}"),
                number=number,
                action=ACTION,
            )
            self.owner[op_id] = (tenant, sampler)
            if self.may_ring(tenant) and tenant not in {whose[0] for whose in self.standing.values()}:
                self.out[op_id] = tenant
                self.bells_out.add(op_id)
            else:
                self.standing[op_id] = (tenant, sampler)
            assert (
                self.ask("gateway", "append", op, Bell(op=op_id, queue="q", task="t", summary="s", line=LINE)) == op_id
            )
            assert (op_id in self.bells) == (op_id in self.out), "rung at once, or not"
        return op_id

    @rule(worker=workers, slots=st.sampled_from([0, 1, 4, 9, 50, 200]))
    def stay(self, worker, slots):
        self.brought.pop(worker, None)
        if slots:
            self.brought[worker] = (slots, self.now + LIMITS.hold_seconds)
        self.ask(worker, "stay", "", Brings(line=LINE, slots=slots) if slots else None)
        self.sweep()

    @rule(worker=workers)
    def leave(self, worker):
        self.brought.pop(worker, None)
        self.ask(worker, "leave")
        self.sweep()

    @rule(target=claims, worker=workers, late=st.booleans())
    def answer_a_bell(self, worker, late):
        return self.claim(worker, self.bells.pop(-1 if late else 0)) if self.bells else None

    @rule(target=claims, worker=workers, op_id=ops)
    def claim_out_of_order(self, worker, op_id):
        return self.claim(worker, op_id)

    def claim(self, worker, op_id):
        stood = op_id in self.standing
        held = self.ask(worker, "claim", op_id, sweeps=True)
        assert held is None or not stood, "claimed in line"
        self.look()
        return None if held is None else (worker, held)

    @rule()
    def bells_are_lost(self):
        self.bells.clear()

    @rule(claim=consumes(claims), well=st.booleans())
    def settle(self, claim, well):
        if claim is not None:
            worker, held = claim
            try:
                self.ask(worker, "done" if well else "failed", held, RESULT if well else FAILURE, settles=held.op.id)
            except ClaimLost:
                return

    @rule(claim=consumes(claims), counts=st.booleans())
    def give_back(self, claim, counts):
        if claim is not None:
            worker, held = claim
            try:
                self.ask(worker, "give_back", held, counts=counts)
            except ClaimLost:
                return

    @rule(op_id=ops)
    def cancel(self, op_id):
        self.ask("gateway", "cancel", op_id, OpCancelled(), settles=None if op_id in self.settled else op_id)

    @rule(op_id=ops)
    def ask_for_its_place(self, op_id):
        assert (self.ask("gateway", "place", op_id) is not None) == (op_id in self.standing)

    @rule(seconds=st.sampled_from(PAUSES))
    def time_goes_by_and_someone_sweeps(self, seconds):
        self.now += seconds
        self.sweep()

    def sweep(self):
        """Also after a worker went: nobody's slots may be more than those of the one that went."""
        self.ask("gateway", "sweep", sweeps=True)
        self.look()

    # ---------------------------------------------------------------------------------------- what always holds
    @invariant()
    def nobody_stands_who_may_be_rung(self):
        assert not any(self.may_ring(tenant) for tenant, _ in self.standing.values())

    @invariant()
    def the_unsettled_either_stand_or_are_out(self):
        assert set(self.owner) == self.settled | set(self.out) | set(self.standing)

    def teardown(self):
        """Every worker is dead and every bell lost; then one comes and answers what is rung."""
        self.bells.clear()
        for _ in range(100):
            self.now += 41.0071
            self.sweep()
            bells, self.bells = self.bells, []
            for op_id in dict.fromkeys(bells):
                if (claim := self.claim("w", op_id)) is not None:
                    self.ask("w", "done", claim[1], RESULT, settles=op_id)
            if len(self.settled) == len(self.owner):
                break
        assert len(self.settled) == len(self.owner)


def test_any_history_keeps_lines_fair_and_moving(client):
    run_state_machine_as_test(
        lambda: Lines(client),
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
