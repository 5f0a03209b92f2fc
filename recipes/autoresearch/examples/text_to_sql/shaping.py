"""The reward that RL learns from. `match`, `compiles` and `similarity` are the weights of the settings."""

from reward import Score


def reward(score: Score, *, match: float, compiles: float, similarity: float) -> float:
    """`score` says whether the rows are right, whether the query compiles, and how like the gold one it is (0 to 1)."""
    return match * score.match + compiles * score.compiles + similarity * score.similarity
