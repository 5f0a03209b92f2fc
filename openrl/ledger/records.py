"""What rows in Redis tell of their ops, read without a script."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, cast

import redis

from openrl.domain.errors import BytesLost
from openrl.domain.ids import OpId, TenantId
from openrl.domain.op import Status
from openrl.domain.outcome import Record, failure_of
from openrl.ledger import codec
from openrl.ledger.keys import Keys
from openrl.ledger.outage import told_apart
from openrl.ledger.shelving import Shelving

log = logging.getLogger(__name__)

_FIELDS: Final = (
    *("tenant", "kind", "status", "attempts", "failure", "bell", "label"),
    *("result_at", "result_kind", "result", "settled_by"),
)


def read_record(client: redis.Redis, keys: Keys, shelving: Shelving, op_id: OpId) -> Record | None:
    """A result that its shelf lost reads as a failure. Raises LedgerUnreachable."""
    with told_apart():
        row = cast(list[Any], client.hmget(keys.op(op_id), _FIELDS))
    tenant, kind, status, attempts, failure, bell, label, result_at, result_kind, result, settled_by = row
    if status is None:
        return None
    record = Record(
        id=op_id,
        tenant=TenantId(tenant.decode()),
        kind=kind.decode(),
        status=Status(status.decode()),
        attempts=int(attempts),
        failure=None if failure is None else codec.decode_failure(failure),
        queue=codec.decode_bell(bell).queue if bell else "",
        label="" if label is None else label.decode(),
    )
    if record.status is not Status.DONE:
        return record
    try:
        data = shelving.result(op_id, int(settled_by)) if result_at == b"shelf" else result
    except BytesLost as error:
        log.error("%s", error, extra={"action": "read", "op": op_id})
        return replace(record, status=Status.FAILED, failure=failure_of(error))
    return replace(record, result=codec.decode(result_kind.decode(), data))


def statuses(client: redis.Redis, keys: Keys, op_ids: Iterable[OpId]) -> dict[OpId, str]:
    """Status by op in one round trip; unknown ones are left out."""
    wanted = list(op_ids)
    if not wanted:
        return {}
    pipeline = client.pipeline(transaction=False)
    for op_id in wanted:
        pipeline.hget(keys.op(op_id), "status")
    found = cast(list[bytes | None], pipeline.execute())
    return {op_id: status.decode() for op_id, status in zip(wanted, found, strict=True) if status is not None}
