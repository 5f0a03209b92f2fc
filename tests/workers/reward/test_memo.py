from openrl.rewards import RewardResult
from workers.reward.memo import Memo, key_of


def test_what_was_used_longest_ago_is_forgotten() -> None:
    memo = Memo(kept=2)
    for key, value in ((b"a", 1.0), (b"b", 2.0)):
        memo.put(key, RewardResult(value))
    assert memo.get(b"a") == RewardResult(1.0)
    memo.put(b"c", RewardResult(3.0))
    assert (memo.get(b"a"), memo.get(b"b"), memo.get(b"c")) == (RewardResult(1.0), None, RewardResult(3.0))


def test_a_zero_is_kept_like_any_score() -> None:
    memo = Memo()
    memo.put(b"a", RewardResult(0.0))
    assert memo.get(b"a") == RewardResult(0.0)


def test_all_that_a_score_depends_on_is_in_its_key() -> None:
    same = ("exact", "1", "text", {"a": "1", "b": "2"}, {"c": "3"})
    keys = {
        key_of(*same),
        key_of("regex", *same[1:]),
        key_of("exact", "2", *same[2:]),
        key_of("exact", "1", "other", *same[3:]),
        key_of(*same[:3], {"a": "1"}, {"c": "3"}),
        key_of(*same[:4], {}),
        key_of("exact", "1", "text", {"a": "1"}, {"b": "2", "c": "3"}),
    }
    assert len(keys) == 7
    assert key_of(*same) == key_of("exact", "1", "text", {"b": "2", "a": "1"}, {"c": "3"})
