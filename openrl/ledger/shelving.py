"""Bytes too big for a row: put on the shelf before their row is written, and deleted after."""

import logging

from openrl.domain.errors import BytesLost
from openrl.domain.ids import OpId
from openrl.ledger.keys import body_key, result_key
from openrl.ledger.port import Shelf

log = logging.getLogger(__name__)


class Shelving:
    def __init__(self, shelf: Shelf, inline_bytes: int) -> None:
        self._shelf, self._inline_bytes = shelf, inline_bytes

    def put_body(self, op_id: OpId, body: bytes) -> bool:
        """Whether the body was too big for its row."""
        return self._put(body_key(op_id), body)

    def put_result(self, op_id: OpId, epoch: int, data: bytes) -> bool:
        """Whether the result was too big for its row."""
        return self._put(result_key(op_id, epoch), data)

    def body(self, op_id: OpId) -> bytes:
        """Raises BytesLost."""
        return self._get(body_key(op_id))

    def result(self, op_id: OpId, epoch: int) -> bytes:
        """Raises BytesLost."""
        return self._get(result_key(op_id, epoch))

    def discard_body(self, op_id: OpId) -> None:
        self._discard(body_key(op_id))

    def discard_result(self, op_id: OpId, epoch: int) -> None:
        self._discard(result_key(op_id, epoch))

    def _put(self, key: str, data: bytes) -> bool:
        if len(data) <= self._inline_bytes:
            return False
        self._shelf.put(key, data)
        return True

    def _get(self, key: str) -> bytes:
        try:
            return self._shelf.get(key)
        except KeyError as error:
            raise BytesLost(key) from error

    def _discard(self, key: str) -> None:
        """What is deleted has no row any more: a shelf that refuses costs space and must not undo what was settled."""
        try:
            self._shelf.delete(key)
        except Exception:
            log.exception("left on the shelf: %s", key, extra={"action": "discard"})
