"""From a GGUF file to an ordinary Hugging Face folder in bfloat16. Needs torch and transformers."""

import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from openrl.domain.errors import BaseModelMissing
from openrl.models.catalogue import Listed
from openrl.models.fetch import Report

hf: Any = transformers  # most of its calls are not typed


def convert(model: Listed, gguf: Path, folder: Path, report: Report) -> None:
    """Write config, weights, generation config and tokenizer into `folder`."""
    with quiet():
        report("convert tokenizer", None)
        _save_tokenizer(model, gguf, folder)
        report("convert weights", None)
        _save_weights(gguf, folder)


def check(model: Listed, folder: Path, report: Report) -> None:
    """Load the folder as a worker will, and run it once. Raises BaseModelMissing where it does not hold water."""
    report("check", None)
    text = "In 2024 the café had 135 seats.\n\nTwo words"
    with quiet(), torch.inference_mode():
        tokenizer = hf.AutoTokenizer.from_pretrained(folder)
        tokens = tokenizer.encode(text)
        if tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False) != text:
            raise BaseModelMissing(model.name, "its tokenizer does not give back the text it was given")
        network = hf.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
        logits = network(torch.tensor([tokens])).logits
        if not torch.isfinite(logits).all():
            raise BaseModelMissing(model.name, "its logits are not finite after conversion")


@contextmanager
def quiet() -> Iterator[None]:
    """No notices and no progress bars of transformers'; ours are enough. Its GGUF loader's bar heeds no setting."""
    logging = hf.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _save_tokenizer(model: Listed, gguf: Path, folder: Path) -> None:
    tokenizer = hf.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if model.splits_digits:
        pieces = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
        tokenizer.backend_tokenizer.pre_tokenizer = pieces
    tokenizer.save_pretrained(folder)
    _mend_tokenizer_config(folder / "tokenizer_config.json", model.context_length)


def _mend_tokenizer_config(path: Path, context_length: int) -> None:
    """Leave out where it was loaded from, and use a class name that transformers 4 and 5 both know."""
    config = json.loads(path.read_text())
    config = {key: value for key, value in config.items() if key not in ("is_local", "local_files_only", "backend")}
    if config.get("tokenizer_class") == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["model_max_length"] = context_length
    path.write_text(json.dumps(config, indent=2) + "\n")


def _save_weights(gguf: Path, folder: Path) -> None:
    """transformers refuses to save what it read from GGUF, so the weights move into a fresh model."""
    read = hf.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    config = type(read.config)(**_plain_config(read.config.to_dict()))
    fresh = hf.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    fresh.load_state_dict(read.state_dict())
    fresh.generation_config = hf.GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    fresh.save_pretrained(folder)


def _plain_config(config: dict[str, Any]) -> dict[str, Any]:
    """Without the traces of GGUF: its quantization note, its name, and float32 noise (9.99999974e-06 is 1e-05)."""
    kept = {key: value for key, value in config.items() if key not in ("quantization_config", "_name_or_path")}
    return {key: float(str(np.float32(value))) if isinstance(value, float) else value for key, value in kept.items()}
