"""What an unmodified Tinker SDK client can be told to send along."""

from typing import Final

#: For `tinker.ServiceClient(default_headers_overrides=…)`: the runs it creates train all weights of the base model. The
#: SDK's `rank` and `seed` then mean nothing.
FULL_RUN_HEADERS: Final = {"X-OpenRL-Full": "1"}
