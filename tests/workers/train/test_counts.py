from workers.train.counts import PassCounts


def test_the_padding_share_is_of_all_tokens_run() -> None:
    counts = PassCounts()
    assert counts.padding_share == 0
    counts.passed(tokens=60, padding=0, recomputed=False)
    counts.passed(tokens=40, padding=10, recomputed=True)
    assert (counts.passes, counts.recomputed, counts.padding_share) == (2, 1, 0.1)
