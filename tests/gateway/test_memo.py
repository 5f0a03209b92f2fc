from openrl.gateway.memo import Memo


def test_an_answer_is_made_once_until_its_time_is_over():
    now, made = [0.0], []
    memo = Memo(seconds=10.0, clock=lambda: now[0])
    answer = lambda: made.append(1) or len(made)  # noqa: E731  a statement in an expression, for the count
    assert [memo.get("a", answer), memo.get("a", answer)] == [1, 1]
    now[0] = 10.0
    assert memo.known("a") is None
    assert memo.get("a", answer) == 2


def test_only_the_last_ones_are_kept():
    memo = Memo(seconds=10.0, size=2)
    for key in "abc":
        memo.keep(key, key)
    assert [memo.known(key) for key in "abc"] == [None, "b", "c"]
