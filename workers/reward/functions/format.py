import re

from openrl.rewards import FieldInvalid, RewardResult, Words, reward
from workers.reward.functions.fields import as_json, found


@reward(version="1", pure=True)
def score(text: str, context: Words, params: Words) -> RewardResult:
    """The share of `tags` (`context.tags`, else `params.tags`: a JSON list of names) that are in order: `<name>` and
    `</name>` once each, in the order of the list, none inside another. A part for each."""
    field, word = found(context, params, "tags")
    tags = as_json(field, word, list)
    if not tags or not all(isinstance(tag, str) and re.fullmatch(r"[A-Za-z][\w-]*", tag) for tag in tags):
        raise FieldInvalid(field, "must be a list of tag names, at least one")
    if len(set(tags)) < len(tags):
        raise FieldInvalid(field, "names a tag twice")
    parts, behind = {}, 0
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        once = text.count(opening) == 1 and text.count(closing) == 1
        start, end = text.find(opening), text.find(closing)
        right = once and behind <= start < end
        parts[tag] = float(right)
        behind = end + len(closing) if right else behind
    return RewardResult(sum(parts.values()) / len(parts), parts=parts)
