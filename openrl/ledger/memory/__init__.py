"""A ledger in memory: a double for tests, with the same rules as `redis` and a clock one can set.

Knows no bytes: ops and results are kept as they are, so nothing ever goes to a shelf. `ledger` is the door and has the
lock; behind it `rows` is what is kept, and the other modules do what the scripts of their names do in Redis. Whose the
runs are is in `leases.py` beside this package, how far they have come in `turns.py`, who stands in line in `lines.py`,
who waits for whom in `joins.py`, and what batches come to in `batches.py`.
"""

from openrl.ledger.memory.ledger import MemoryLedger

__all__ = ["MemoryLedger"]
