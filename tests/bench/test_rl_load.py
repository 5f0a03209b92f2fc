import asyncio
from collections.abc import Awaitable
from concurrent.futures import Future

import numpy as np
import rl_load
from tinker import types


def sequence(tokens: list[int]) -> types.SampledSequence:
    logprobs = np.full(len(tokens), -1.5, dtype=np.float32)
    return types.SampledSequence(
        stop_reason="length", sequence_id="", tokens_np=np.asarray(tokens, dtype=np.int32), logprobs_np=logprobs
    )


def test_a_datum_trains_on_the_completion_only() -> None:
    datum = rl_load.datum([11, 12, 13], sequence([21, 22]), 0.5)
    assert datum.model_input.to_ints() == [11, 12, 13, 21]
    assert list(datum.loss_fn_inputs["target_tokens"].data) == [12, 13, 21, 22]
    assert list(datum.loss_fn_inputs["logprobs"].data) == [0.0, 0.0, -1.5, -1.5]
    assert list(datum.loss_fn_inputs["advantages"].data) == [0.0, 0.0, 0.5, 0.5]


def test_advantages_are_normalised_within_the_group() -> None:
    group = rl_load.group_data([11, 12], [sequence([20, 22]), sequence([21, 23])])
    assert [datum.loss_fn_inputs["advantages"].data[-1] for datum in group] == [1.0, -1.0]


def test_a_group_of_equal_rewards_has_no_advantage() -> None:
    group = rl_load.group_data([11, 12], [sequence([20]), sequence([22])])
    assert [datum.loss_fn_inputs["advantages"].data[-1] for datum in group] == [0.0, 0.0]


def test_an_answer_is_what_a_call_of_any_sdk_comes_to() -> None:
    async def coroutine() -> int:
        return 5

    done: Future[int] = Future()
    done.set_result(5)
    answers: list[int | Awaitable[int] | Future[int]] = [5, coroutine(), done]
    for answer in answers:
        assert asyncio.run(rl_load.settled(answer)) == 5


def test_a_call_that_blocks_leaves_the_loop_to_others() -> None:
    async def both() -> list[str]:
        there: Future[str] = Future()
        first = asyncio.create_task(rl_load.blocking(there.result))
        await asyncio.sleep(0)
        there.set_result("answered")
        return [await first]

    assert asyncio.run(asyncio.wait_for(both(), 10)) == ["answered"]
