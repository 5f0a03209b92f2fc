import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).parents[2] / "recipes" / "sft_pig_latin"


@pytest.fixture(scope="module")
def task() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import pig_latin

        yield pig_latin


@pytest.mark.parametrize(
    ("phrase", "said"),
    [
        ("apple", "apple-way"),
        ("banana", "anana-bay"),
        ("string", "ing-stray"),
        ("quiet", "iet-quay"),
        ("squash", "ash-squay"),
        ("yellow", "ellow-yay"),
        ("rhythm", "ythm-rhay"),
        ("fly", "y-flay"),
        ("green apple", "een-gray apple-way"),
    ],
)
def test_words_are_put_into_pig_latin(task: ModuleType, phrase: str, said: str) -> None:
    assert task.pig_latin(phrase) == said


def test_all_words_are_lower_case_letters_and_stand_once(task: ModuleType) -> None:
    assert len(task.WORDS) == len(set(task.WORDS)) > 1000
    assert all(word.isascii() and word.isalpha() and word.islower() for word in task.WORDS)
    assert all(any(letter in "aeiouy" for letter in word) for word in task.WORDS)


def test_no_unseen_word_is_ever_learned_from(task: ModuleType) -> None:
    rng = random.Random(1)
    learned = {word for _ in range(3000) for word in task.draw(rng).phrase.split()}
    tested = {word for example in task.held_out(300) for word in example.phrase.split()}
    assert learned <= set(task.SEEN_WORDS) and len(learned) > 900
    assert tested <= task.UNSEEN_WORDS
    assert not learned & tested


def test_a_seed_always_draws_the_same_and_tests_are_the_same(task: ModuleType) -> None:
    drawn = [[task.draw(rng) for _ in range(20)] for rng in (random.Random(7), random.Random(7), random.Random(8))]
    assert drawn[0] == drawn[1] != drawn[2]
    assert task.held_out(12) == task.held_out(30)[:12]
    assert [len(example.phrase.split()) for example in task.held_out(4)] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("reply", "exact", "characters"),
    [
        ("een-gray apple-way", True, 1.0),
        (" Een-gray Apple-way\n", True, 1.0),
        ("een-gray apple-ay", False, 17 / 18),
        ("een-gray apple-wayy", False, 18 / 19),
        ("een-grax apple-way", False, 17 / 18),
        ("een-gray", False, 8 / 18),
        ("een-gray apple-way!", False, 18 / 19),
        ("", False, 0.0),
    ],
)
def test_replies_are_scored(task: ModuleType, reply: str, exact: bool, characters: float) -> None:
    example = task.Example("green apple", "een-gray apple-way")
    assert task.is_exact(reply, example) is exact
    assert task.character_accuracy(reply, example) == pytest.approx(characters)


@given(reply=st.text(max_size=40))
def test_any_reply_has_a_score(task: ModuleType, reply: str) -> None:
    example = task.Example("green apple", "een-gray apple-way")
    assert 0 <= task.character_accuracy(reply, example) <= 1
    assert task.is_exact(reply, example) == (task.character_accuracy(reply, example) == 1)
