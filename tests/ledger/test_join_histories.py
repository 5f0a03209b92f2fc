"""Whatever workers do, die of or forget: both ledgers let the same joined ops go, once each, and leave none behind.

The machine knows the rules of a join in their plainest form, and never looks inside a ledger.
"""

import time
from collections import Counter

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, rule, run_state_machine_as_test
from twins import answer

from openrl.domain.errors import ClaimLost, EngineBusy, OpCancelled
from openrl.domain.ids import OpId, TenantId
from openrl.domain.op import SETTLED, Bell, RewardOp, ScoreTexts
from openrl.domain.outcome import StepResult, failure_of
from openrl.domain.rollout import After, OnFailure
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.port import Brings, Limits
from openrl.ledger.redis import RedisLedger

LIMITS = Limits(hold_seconds=15.0, ring_again_seconds=5.0, max_attempts=2, keep_seconds=100.0)
RESULT = StepResult(metrics={})
FAILURE = failure_of(EngineBusy("no"))
LINE = "rewards"
ACTION = ScoreTexts(reward="length", texts=("a",), contexts=({},))

#: No sum of a few is a whole number of seconds, which the two clocks might see from either side.
PAUSES = (4.1003, 6.3017, 16.7029, 70.9041)


class Joins(RuleBasedStateMachine):
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
            def offset():
                return self.now - time.time()

            return RedisLedger(client, {}, self.ear(1), holder=holder, limits=LIMITS, clock_offset=offset)

        self.ledgers = {name: (memory.seen_by(name), redis_ledger(name)) for name in ("gateway", "w", "v")}
        self.members: dict[OpId, tuple[OpId, ...]] = {}
        self.policy: dict[OpId, OnFailure] = {}
        self.settled: dict[OpId, str] = {}
        self.ask("w", "stay", "", Brings(line=LINE, slots=4))

    def ear(self, number: int):
        return lambda bell: self.heard[number].append(bell.op)

    # ---------------------------------------------------------------------------------------- asking both
    def ask(self, who: str, verb: str, *args, **kwargs):
        answers = [answer(ledger, verb, args, kwargs) for ledger in self.ledgers[who]]
        assert answers[0] == answers[1], verb
        heard, others = (list(ears) for ears in self.heard)
        assert Counter(heard) == Counter(others), verb
        for ears in self.heard:
            ears.clear()
        self.bells += heard
        self.look(heard)
        if isinstance(answers[0], tuple) and isinstance(answers[0][0], type):
            raise answers[0][0](*answers[0][1])
        return answers[0]

    def look(self, heard: list[OpId]) -> None:
        """What has settled since, and whether what was rung may run."""
        both = [ledger.statuses(self.members) for ledger in self.ledgers["gateway"]]
        assert both[0] == both[1]
        for op_id, status in both[0].items():
            if status in SETTLED:
                assert self.settled.setdefault(op_id, status) == status, "settled twice"
        for op_id in heard:
            assert all(member in self.settled for member in self.members[op_id]), "rung before its members settled"
        for op_id, members in self.members.items():
            failed = any(self.settled.get(member) == "failed" for member in members)
            if failed and self.policy[op_id] is OnFailure.FAIL:
                assert self.settled[op_id] == "failed", "outlived a member that failed"
            if op_id not in self.settled:
                assert not [member for member in members if member not in both[0]], "a member was forgotten too early"

    # ---------------------------------------------------------------------------------------- what may happen
    @rule(target=ops, members=st.lists(ops, max_size=3), policy=st.sampled_from(OnFailure), lined=st.booleans())
    def append(self, members, policy, lined):
        known = self.ledgers["gateway"][0].statuses(self.members)
        members = tuple(dict.fromkeys(member for member in members if member in known))
        op_id = OpId(f"op-{len(self.members)}")
        after = After(ops=members, on_failure=policy) if members else None
        op = RewardOp(id=op_id, tenant=TenantId("anna"), action=ACTION, after=after)
        self.members[op_id], self.policy[op_id] = members, policy
        bell = Bell(op=op_id, queue="q", task="t", summary="s", line=LINE if lined else "")
        assert self.ask("gateway", "append", op, bell) == op_id
        return op_id

    @rule(target=claims, who=st.sampled_from(["w", "v"]), op_id=ops)
    def claim(self, who, op_id):
        held = self.ask(who, "claim", op_id)
        if held is not None:
            assert all(member in self.settled for member in self.members[op_id]), "begun before its members settled"
            assert (held.op.after.ops if held.op.after else ()) == self.members[op_id]
        return who, held

    @rule(claim=consumes(claims), how=st.sampled_from(["done", "failed", "give_back", "twice", "dies"]))
    def end(self, claim, how):
        who, held = claim
        if held is None or how == "dies":
            return
        try:
            match how:
                case "done" | "twice":
                    for _ in range(1 + (how == "twice")):
                        self.ask(who, "done", held, RESULT)
                case "failed":
                    self.ask(who, "failed", held, FAILURE)
                case _:
                    self.ask(who, "give_back", held)
        except ClaimLost:
            pass

    @rule(op_id=ops)
    def cancel(self, op_id):
        self.ask("gateway", "cancel", op_id, OpCancelled())

    @rule(pause=st.sampled_from(PAUSES))
    def time_passes(self, pause):
        self.now += pause
        self.sweep()

    @rule()
    def lose_bells(self):
        self.bells.clear()

    def sweep(self) -> None:
        self.ask("w", "stay", "", Brings(line=LINE, slots=4))
        for ledger in self.ledgers["gateway"]:
            swept = ledger.sweep()
            assert swept.let_go == 0, "a join was left behind"
        self.ask("gateway", "waiting", TenantId("anna"))

    def teardown(self):
        """Every worker dies and every bell is lost; then one comes and answers what is rung."""
        self.bells.clear()
        for _ in range(100):
            self.now += 20.0071
            self.sweep()
            bells, self.bells = self.bells, []
            for op_id in dict.fromkeys(bells):
                if (held := self.ask("w", "claim", op_id)) is not None:
                    self.ask("w", "done", held, RESULT)
            if len(self.settled) == len(self.members):
                break
        assert len(self.settled) == len(self.members)


def test_any_history_lets_joined_ops_go_once_and_leaves_none_behind(client):
    run_state_machine_as_test(
        lambda: Joins(client),
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
        ),
    )
