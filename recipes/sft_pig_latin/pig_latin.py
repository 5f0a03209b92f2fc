"""The task: put words into Pig Latin. The rules, the words, which of them training sees, and how a reply is scored.

Everything here is plain Python over strings. It knows no model, no tokens and no service. A new task needs a `draw`
that makes examples to learn from, a `held_out` that makes those to be tested with, and a score.
"""

import random
import re
from dataclasses import dataclass
from pathlib import Path

SYSTEM = (
    "You put English into Pig Latin. A word that begins with a vowel gets '-way' at its end. Of any other word, the "
    "consonants before its first vowel move to its end, behind a hyphen and followed by 'ay'."
)
#: What moves: all before the first vowel. The u of "qu" goes with its q, and y is a vowel except as the first letter.
MOVES = re.compile(r"(y?(?:qu|[^aeiouy])*)(.*)")

WORDS = (Path(__file__).parent / "words.txt").read_text().split()
UNSEEN_WORDS = frozenset(random.Random("unseen").sample(WORDS, 200))
SEEN_WORDS = [word for word in WORDS if word not in UNSEEN_WORDS]
LONGEST = 2  #: words of one phrase


@dataclass(frozen=True, slots=True)
class Example:
    """A phrase, and what it is in Pig Latin."""

    phrase: str
    reply: str

    def messages(self) -> list[dict[str, str]]:
        """The chat to put before the model."""
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"In Pig Latin: {self.phrase}"}]


def pig_latin(phrase: str) -> str:
    """A phrase of lower-case words, put into Pig Latin word by word."""
    return " ".join(_word(word) for word in phrase.split())


def _word(word: str) -> str:
    moved, rest = MOVES.fullmatch(word).groups()  # type: ignore[union-attr]  # matches anything
    return f"{rest}-{moved}ay" if moved else f"{word}-way"


def draw(rng: random.Random) -> Example:
    """A phrase of one or two words, none of them an unseen one."""
    return _example(rng.sample(SEEN_WORDS, rng.randint(1, LONGEST)))


def held_out(count: int) -> list[Example]:
    """Always the same `count` phrases of unseen words, one word and two words in turn."""
    rng = random.Random(0)
    words = sorted(UNSEEN_WORDS)
    return [_example(rng.sample(words, index % LONGEST + 1)) for index in range(count)]


def _example(words: list[str]) -> Example:
    phrase = " ".join(words)
    return Example(phrase, pig_latin(phrase))


def is_exact(reply: str, example: Example) -> bool:
    """Whether the reply is the right one, but for capitals, and white space around it."""
    return reply.strip().lower() == example.reply


def character_accuracy(reply: str, example: Example) -> float:
    """1 less the edits (a letter put in, left out or changed) between reply and right reply, for each letter of the
    longer of them: 1 where they are the same, 0 where they share nothing."""
    said, right = reply.strip().lower(), example.reply
    return 1 - _edits(said, right) / max(len(said), len(right))


def _edits(one: str, other: str) -> int:
    """The least number of edits that make `other` of `one` (Levenshtein), row by row."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, start=1):
        above, row = row, [i]
        for j, right in enumerate(other, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (left != right)))
    return row[-1]
