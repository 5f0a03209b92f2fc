"""Reward functions that the operator has to switch on, as far as a request for them can be checked here. Pure.

The worker checks all of it again: what it stands on may be another machine.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from openrl.config import Reward
from openrl.domain.errors import FieldInvalid, RewardWithheld
from openrl.domain.webhook import require_allowed

SOURCE, WEBHOOK = "source", "webhook"
SOURCE_CHARS: Final = 32_000
SOURCE_OFF: Final = "the operator lets clients send the source of reward functions with OPENRL_REWARD__SOURCE=true"
NOT_STRONG: Final = "no reward worker that is up has a sandbox of level strong"
WEBHOOK_OFF: Final = "the operator lists the URLs that may be posted to in OPENRL_REWARD__WEBHOOK_URLS"


def require_offered(
    name: str, params: Mapping[str, str], reward: Reward, known: Sequence[str], *, field: str, params_field: str
) -> None:
    """Raises RewardWithheld, FieldInvalid. `known` are the functions that workers announce; none are: nobody is up."""
    if name == SOURCE:
        if not reward.source:
            raise RewardWithheld(field, name, SOURCE_OFF)
        if known and name not in known:
            raise RewardWithheld(field, name, NOT_STRONG)
        _check_source(params, f"{params_field}.source")
    if name == WEBHOOK:
        if not reward.webhook_urls:
            raise RewardWithheld(field, name, WEBHOOK_OFF)
        require_allowed(params.get("url", ""), f"{params_field}.url", reward.webhook_urls)


def _check_source(params: Mapping[str, str], field: str) -> None:
    source = params.get("source", "")
    if not source.strip():
        raise FieldInvalid(field, "is missing; send Python source that defines score(text, context, params)")
    if len(source) > SOURCE_CHARS:
        raise FieldInvalid(field, f"has {len(source)} characters; at most {SOURCE_CHARS} are taken")
