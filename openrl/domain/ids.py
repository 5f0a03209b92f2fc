"""Names of things. All are opaque strings; the types keep them from being mixed up."""

from typing import NewType

TenantId = NewType("TenantId", str)
SessionId = NewType("SessionId", str)
RunId = NewType("RunId", str)  #: `<session>:train:<n>`, Tinker's `model_id`
SamplerId = NewType("SamplerId", str)  #: `<session>:sample:<n>`, Tinker's `sampling_session_id`
OpId = NewType("OpId", str)  #: Tinker's `request_id` and the Celery task id
WorkerId = NewType("WorkerId", str)  #: one worker process
BatchId = NewType("BatchId", str)  #: a batch of rollouts
DepotKey = NewType("DepotKey", str)  #: derived by us, never from a user's string
