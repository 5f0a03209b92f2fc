import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from openrl.domain.errors import AdapterUnsupported, CallerError
from openrl.domain.run import LoraSpec
from workers.model.adapter_files import CONFIG, WEIGHTS, from_files, to_files
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.model.lora import Mix
from workers.sample.torch.joined import Joined, JoinedPart

pytestmark = [  # PEFT's own affairs
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings:UserWarning"),
]
Make = Callable[[str], PreTrainedModel]
SPECS = [
    LoraSpec(rank=4),
    LoraSpec(rank=3, train_unembed=False),
    LoraSpec(rank=2, train_attn=False, train_mlp=False),
    LoraSpec(rank=2, train_mlp=False, train_unembed=False),
]
IDS = torch.arange(20).view(2, 10)


def ours(base: BaseModel, shape: LoraShape, flat: torch.Tensor) -> torch.Tensor:
    part = JoinedPart(Joined([(shape, flat)]), [0, 0])
    with torch.no_grad(), base.mixed(Mix((part,))):
        return base.head(base.hidden(IDS))


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


def randomize(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1


@pytest.fixture
def random_adapter(base: BaseModel) -> Callable[[LoraSpec], tuple[LoraShape, torch.Tensor]]:
    def make(spec: LoraSpec) -> tuple[LoraShape, torch.Tensor]:
        shape = LoraShape.of(base.layout, spec)
        return shape, torch.randn(shape.size, generator=torch.Generator().manual_seed(0)) * 0.1

    return make


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_what_we_save_loads_in_peft_with_equal_logits(
    make_module: Make, spec: LoraSpec, family: str, tmp_path: Path
) -> None:
    base = BaseModel(make_module(family), "tiny")
    shape = LoraShape.of(base.layout, spec)
    flat = torch.randn(shape.size, generator=torch.Generator().manual_seed(0)) * 0.1
    write(tmp_path, to_files(shape, flat, "tiny"))
    theirs = PeftModel.from_pretrained(make_module(family), str(tmp_path))
    with torch.no_grad():
        torch.testing.assert_close(ours(base, shape, flat), theirs(input_ids=IDS).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        {"r": 4, "lora_alpha": 16, "target_modules": "all-linear"},
        {"r": 8, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]},
        {"r": 4, "lora_alpha": 8, "use_rslora": True, "target_modules": ["up_proj", "o_proj"]},
        {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": ["q_proj", "gate_proj"],
            "rank_pattern": {"q_proj": 2},
            "alpha_pattern": {"layers.1.mlp.gate_proj": 20},
        },
    ],
    ids=["alpha", "few targets", "rslora", "patterns"],
)
def test_what_peft_saves_loads_here_with_equal_logits(
    base: BaseModel, make_module: Make, config: dict[str, object], tmp_path: Path
) -> None:
    theirs = get_peft_model(make_module("llama"), LoraConfig(task_type="CAUSAL_LM", **config))
    randomize(theirs)
    theirs.save_pretrained(str(tmp_path))
    shape, flat = from_files(base.layout, read(tmp_path))
    with torch.no_grad():
        wanted = theirs(input_ids=IDS).logits
    torch.testing.assert_close(ours(base, shape, flat), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_reading_gives_back_exactly_what_was_written(
    base: BaseModel, random_adapter: Callable[[LoraSpec], tuple[LoraShape, torch.Tensor]], spec: LoraSpec
) -> None:
    shape, flat = random_adapter(spec)
    again, same = from_files(base.layout, to_files(shape, flat, "tiny"))
    assert again == shape and torch.equal(same, flat)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias"),
        ({"peft_type": "IA3"}, "peft_type"),
    ],
)
def test_adapters_that_are_more_than_lora_are_refused_by_name(
    base: BaseModel,
    random_adapter: Callable[[LoraSpec], tuple[LoraShape, torch.Tensor]],
    change: dict[str, object],
    named: str,
) -> None:
    files = to_files(*random_adapter(LoraSpec(rank=2)), "tiny")
    files[CONFIG] = json.dumps(json.loads(files[CONFIG]) | change).encode()
    with pytest.raises(AdapterUnsupported, match=named):
        from_files(base.layout, files)


def test_an_adapter_of_another_model_is_refused(base: BaseModel, make_module: Make) -> None:
    other = BaseModel(make_module("gemma3"), "other")
    wide = LoraShape.of(other.layout, LoraSpec(rank=2))
    files = to_files(wide, torch.zeros(wide.size), "other")
    files[WEIGHTS] = files[WEIGHTS].replace(b"layers.1", b"layers.9")
    with pytest.raises(AdapterUnsupported, match=r"layers\.9"):
        from_files(base.layout, files)


@pytest.mark.parametrize("missing", [CONFIG, WEIGHTS])
def test_missing_files_are_named(
    base: BaseModel, random_adapter: Callable[[LoraSpec], tuple[LoraShape, torch.Tensor]], missing: str
) -> None:
    files = to_files(*random_adapter(LoraSpec(rank=2)), "tiny")
    del files[missing]
    with pytest.raises(CallerError, match=missing):
        from_files(base.layout, files)


def test_weights_that_are_not_finite_are_refused(
    base: BaseModel, random_adapter: Callable[[LoraSpec], tuple[LoraShape, torch.Tensor]]
) -> None:
    shape, flat = random_adapter(LoraSpec(rank=2))
    flat[5] = torch.nan
    with pytest.raises(AdapterUnsupported, match="finite"):
        from_files(base.layout, to_files(shape, flat, "tiny"))
