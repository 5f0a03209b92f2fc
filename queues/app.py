"""The Celery application: json only, late acknowledgement, no results (they live in the ledger).

`celery -A queues.app …` (Flower, inspect) finds `app` here; it is made on first use from OPENRL_REDIS_URL.
"""

import os
import ssl
from typing import Any

from celery import Celery
from kombu.utils.url import parse_url

#: Seconds after which Redis hands an unacknowledged message out again. Recovery never depends on it: the ledger's sweep
#: rings again within seconds, and a bell that comes twice finds its op claimed or settled.
VISIBILITY_SECONDS = 12 * 3600


def make_app(redis_url: str) -> Celery:
    """An application for ringing bells or for answering them."""
    app = Celery("openrl", broker=redis_url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_create_missing_queues=True,
        task_default_queue="unrouted",
        worker_prefetch_multiplier=1,
        worker_send_task_events=True,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_SECONDS,
            "socket_keepalive": True,
            "health_check_interval": 10,
            # A ring that finds no broker gives up at once: its row is written, and the sweep rings again.
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0,
        },
    )
    if redis_url.startswith("rediss://"):
        app.conf.broker_use_ssl = _tls(redis_url)
    return app


def _tls(redis_url: str) -> dict[str, Any]:
    """How to trust the broker, as the ledger's client reads the same URL: kombu alone would take any certificate where
    the URL says nothing of it."""
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, **parse_url(redis_url).get("ssl", {})}


def __getattr__(name: str) -> Celery:
    if name == "app":
        app = make_app(os.environ["OPENRL_REDIS_URL"])
        globals()["app"] = app
        return app
    raise AttributeError(name)
