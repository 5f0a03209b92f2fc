import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.run import LoraSpec
from workers.model.layout import Group, LoraShape, ModelLayout, Target

LAYOUT = ModelLayout(
    (
        Target("layers.0.self_attn.q_proj", 4, 6, Group.ATTN),
        Target("layers.0.mlp.up_proj", 4, 8, Group.MLP),
        Target("lm_head", 4, 10, Group.UNEMBED),
    )
)


def test_the_flat_vector_holds_a_then_b_of_each_target_without_gaps() -> None:
    shape = LoraShape.of(LAYOUT, LoraSpec(rank=2))
    ends = [(part.start, part.stop) for name in shape.names for part in shape.parts(name)]
    assert ends == [(0, 8), (8, 20), (20, 28), (28, 44), (44, 52), (52, 72)]
    assert shape.size == 72 and shape.scale == 16.0


def test_a_spec_chooses_groups() -> None:
    shape = LoraShape.of(LAYOUT, LoraSpec(rank=2, train_attn=False))
    assert shape.names == ("layers.0.mlp.up_proj", "lm_head")
    assert shape.slices("layers.0.self_attn.q_proj") is None


def test_shapes_are_equal_when_rank_and_targets_are() -> None:
    one, two = LoraShape.of(LAYOUT, LoraSpec(rank=2)), LoraShape.of(LAYOUT, LoraSpec(rank=2, seed=9))
    assert one == two and hash(one) == hash(two)
    assert one != LoraShape.of(LAYOUT, LoraSpec(rank=4))
    assert one != LoraShape.of(LAYOUT, LoraSpec(rank=2, train_mlp=False))


@pytest.mark.parametrize(
    "spec", [LoraSpec(rank=0), LoraSpec(rank=2, train_attn=False, train_mlp=False, train_unembed=False)]
)
def test_a_spec_without_rank_or_targets_is_refused(spec: LoraSpec) -> None:
    with pytest.raises(FieldInvalid, match="lora_config"):
        LoraShape.of(LAYOUT, spec)
