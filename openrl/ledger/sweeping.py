"""One sweep of the ledger in Redis, so much of it at a time that nobody waits for long."""

from typing import Final

from openrl.domain.ids import OpId
from openrl.ledger.follow_up import FollowUp
from openrl.ledger.port import POLICY_SECONDS, Limits, Swept
from openrl.ledger.scripts import Scripts
from openrl.ledger.shelving import Shelving

SWEEP_AT_MOST: Final = 200  #: ops or runs of each kind that one sweep puts right
MEMBERS_AT_MOST: Final = 10_000  #: of joins, that one sweep looks at


def sweep(scripts: Scripts, shelving: Shelving, follow_up: FollowUp, limits: Limits, worn_out: bytes) -> Swept:
    """`worn_out` is the failure of an op that was tried too often, encoded."""
    rules = (limits.max_attempts, limits.gap_seconds, limits.keep_seconds)
    answer = scripts.call("sweep", *rules, SWEEP_AT_MOST, worn_out, POLICY_SECONDS, MEMBERS_AT_MOST)
    bells, bodies, rung, taken, given_up, gaps, forgotten, moved, let_go, results = answer
    follow_up.do(bells, bodies)
    for op_id, epoch in zip(results[::2], results[1::2], strict=True):
        shelving.discard_result(OpId(op_id.decode()), int(epoch))
    return Swept(
        rung_again=rung,
        taken_back=taken,
        given_up=given_up,
        gaps_skipped=gaps,
        forgotten=forgotten,
        moved=moved,
        let_go=let_go,
    )
