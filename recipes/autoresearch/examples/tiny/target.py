"""A target that takes a fraction of a second and needs nothing but Python: fits a polynomial to noisy points.

What it learns from is a reward of two parts, `--weight-fit` for being near the points and `--weight-smooth` for small
coefficients; what counts is how near it is to points that it has not seen. Options that are not given are those of
`settings.json`.
"""

import argparse
import json
import random
from pathlib import Path

DEGREE = 6
HELD_OUT = 24


def truth(x: float) -> float:
    return 1.5 * x**3 - x


def predict(coefficients: list[float], x: float) -> float:
    return sum(coefficient * x**power for power, coefficient in enumerate(coefficients))


def train(options: argparse.Namespace, rng: random.Random, log: Path) -> list[float]:
    """Gradient descent on the weighted parts; a line of the log for each step."""
    points = [(x, truth(x) + rng.gauss(0, 0.3)) for x in (rng.uniform(-1, 1) for _ in range(16))]
    coefficients = [rng.gauss(0, 0.5) for _ in range(DEGREE)]
    with log.open("w") as file:
        for step in range(options.steps):
            errors = [(predict(coefficients, x) - y, x) for x, y in points]
            for power in range(DEGREE):
                fit = sum(error * x**power for error, x in errors) / len(points)
                gradient = options.weight_fit * fit + options.weight_smooth * coefficients[power]
                coefficients[power] -= options.lr * gradient
            loss = sum(error**2 for error, _ in errors) / len(points)
            file.write(json.dumps({"step": step, "reward": 1 / (1 + loss)}) + "\n")
    return coefficients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in json.loads(Path(__file__).with_name("settings.json").read_text()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", type=int, default=0, help="which points are held out")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    coefficients = train(options, random.Random(options.seed), options.out / "metrics.jsonl")
    rng = random.Random(1000 + options.problems)
    held_out = [rng.uniform(-1, 1) for _ in range(HELD_OUT)]
    scores = [1 / (1 + abs(predict(coefficients, x) - truth(x))) for x in held_out]
    (options.out / "problems.json").write_text(json.dumps(scores))
    print(f"score: {sum(scores) / len(scores):.4f}")


if __name__ == "__main__":
    main()
