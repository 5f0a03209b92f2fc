"""The cookbook, unmodified and in an environment of its own, against a real server on a real model.

The model is served under a name that the cookbook knows a renderer for; its tokenizer and the dataset are found as
folders of these names in the working directory, which is how both libraries work without a hub.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from living import COOKBOOK_NAME as NAME
from living import Server, sdk_environment

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-cookbook" / "bin" / "python"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Path:
    """A working directory with the tokenizer and a little dataset in the form of GSM8K."""
    if not PYTHON.exists():
        message = "the cookbook's environment is missing; make it with: make cookbook"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    place = tmp_path_factory.mktemp("workplace")
    (place / NAME).parent.mkdir()
    (place / NAME).symlink_to(smollm2)
    dataset = place / "openai" / "gsm8k" / "main"
    dataset.mkdir(parents=True)
    rows = [{"question": f"How many r's are in strawberry number {n}?", "answer": "Three. #### 3"} for n in range(40)]
    for split in ("train", "test"):
        (dataset / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (dataset.parent / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n"
        "  - split: train\n    path: main/train.jsonl\n  - split: test\n    path: main/test.jsonl\n---\n"
    )
    return place


def cook(server: Server, workplace: Path, recipe: str, *options: str) -> str:
    environment = sdk_environment() | {
        "TINKER_API_KEY": server.api_key,
        "TINKER_BASE_URL": server.url,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(workplace / "hf"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [str(PYTHON), "-m", f"tinker_cookbook.recipes.{recipe}", *options],
        cwd=workplace,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def rows(log: Path, file: str) -> list[dict[str, float | str]]:
    return [json.loads(line) for line in (log / file).read_text().splitlines()]


def agrees_with_training(log: Path) -> None:
    """Log-probabilities that samples came with against those of the training pass, as the cookbook reckons them for
    each step. Bfloat16 rounds logits of 16 to an eighth; tokens or weights that do not match are apart by far more."""
    steps = [row for row in rows(log, "metrics.jsonl") if "optim/kl_sample_train_v1" in row]
    assert steps
    assert max(abs(float(step["optim/kl_sample_train_v1"])) for step in steps) < 0.02
    assert max(float(step["optim/kl_sample_train_v2"]) for step in steps) < 0.01


def test_math_rl_trains_saves_and_resumes(real_server: Server, workplace: Path) -> None:
    log = workplace / "math"
    options = [
        *(f"model_name={NAME}", "env=arithmetic", "group_size=4", "groups_per_batch=4", "learning_rate=1e-4"),
        *("lora_rank=8", "save_every=1", "eval_every=0", f"log_path={log}", f"base_url={real_server.url}"),
        "behavior_if_log_dir_exists=resume",
    ]
    cook(real_server, workplace, "math_rl.train", *options, "max_steps=2")
    saved = rows(log, "checkpoints.jsonl")
    assert all(str(row["state_path"]).startswith("tinker://") for row in saved if row.get("state_path"))
    cook(real_server, workplace, "math_rl.train", *options, "max_steps=4")
    steps = [row["step"] for row in rows(log, "metrics.jsonl") if "env/all/reward/total" in row]
    assert steps == [1, 2, 3, 4], "the second call went on where the first one had saved"
    agrees_with_training(log)


def test_rl_loop_trains_and_resumes(real_server: Server, workplace: Path) -> None:
    log = workplace / "loop"
    options = [
        *(f"model_name={NAME}", "batch_size=4", "group_size=4", "max_tokens=24", "lora_rank=8", "save_every=1"),
        *(f"log_path={log}", f"base_url={real_server.url}"),
    ]
    cook(real_server, workplace, "rl_loop", *options, "max_steps=2")
    first = rows(log, "checkpoints.jsonl")
    assert [row["name"] for row in first] == ["000001", "final"]
    (log / "checkpoints.jsonl").write_text(json.dumps(first[0]) + "\n")
    said = cook(real_server, workplace, "rl_loop", *options, "max_steps=3")
    assert "Resuming from batch 1" in said
    assert "optim" in json.dumps(rows(log, "metrics.jsonl")[-1])
