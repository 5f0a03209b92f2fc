"""How work is announced: Celery queues, their lanes, and the bells that ring on them."""
