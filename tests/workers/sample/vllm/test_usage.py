from workers.sample.vllm.usage import Usage


def test_it_is_busy_while_it_has_samples_and_no_longer():
    now = [100.0]
    usage = Usage(lambda: now[0])
    now[0] = 101.0
    with usage.drawing():
        now[0] = 103.0
        with usage.drawing():
            assert usage.rows == 2
            now[0] = 104.0
            usage.drew(5)
            assert usage.read().busy_seconds == 3.0, "so far"
        usage.drew(2)
    now[0] = 110.0
    use = usage.read()
    assert (use.seconds, use.busy_seconds, use.sample.seconds, use.sample.tokens) == (10.0, 3.0, 3.0, 7)
    assert (use.sample.passes, use.train.seconds, usage.rows) == (0, 0.0, 0)


def test_a_sample_that_fails_is_over_too():
    usage = Usage()
    try:
        with usage.drawing():
            raise ValueError
    except ValueError:
        assert usage.rows == 0
