"""What a model means where it writes more than the answer."""

import re
from typing import Final

_FENCE: Final = re.compile(r"```([a-zA-Z0-9_+-]*)[^\S\n]*\n(.*?)(?:```|\Z)", re.DOTALL)


def inside(text: str, *languages: str) -> str:
    """What stands in the last fence of one of the languages, else in the last without a language, else all of it."""
    fences = _FENCE.findall(text)
    for wanted in (languages, ("",)):
        for language, body in reversed(fences):
            if language.lower() in wanted:
                return str(body).strip()
    return text.strip()
