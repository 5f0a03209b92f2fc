"""Whether an op whose grader failed is tried again. Pure."""

from openrl.domain.errors import GraderFailed, GraderGaveUp


def failure(error: GraderFailed, attempt: int, most: int) -> GraderFailed | GraderGaveUp:
    """What becomes of the op: the ledger tries it again, or this was the last of `most` attempts."""
    return GraderGaveUp(error.where, error.why, attempt) if attempt >= most else error
