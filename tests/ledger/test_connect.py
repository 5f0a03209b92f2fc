"""The client of the ledger's Redis."""

from openrl.ledger.connect import connect


def test_every_thread_of_a_large_worker_gets_a_connection() -> None:
    pool = connect("redis://127.0.0.1:1", retries=0, longest_pause_seconds=0.1).connection_pool
    assert len([pool.make_connection() for _ in range(300)]) == 300
