from openrl.domain.errors import GraderFailed, GraderGaveUp
from workers.reward.attempts import failure


def test_a_grader_that_failed_is_tried_again_until_the_last_attempt() -> None:
    failed = GraderFailed("texts[2]", "died")
    assert failure(failed, 2, 3) is failed
    last = failure(failed, 3, 3)
    assert isinstance(last, GraderGaveUp) and last.args == ("texts[2]", "died", 3)
