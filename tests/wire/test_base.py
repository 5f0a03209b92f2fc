import pytest

from openrl.domain.errors import BodyInvalid, FieldInvalid
from openrl.wire.base import named_turn, read_json
from openrl.wire.sampling import SampleRequest
from openrl.wire.score import ScoreRequest
from openrl.wire.session import CreateSession
from openrl.wire.training import OptimStepRequest


def test_what_is_no_json_is_told_apart_from_a_wrong_field():
    with pytest.raises(BodyInvalid, match=r"^request body: "):
        read_json(OptimStepRequest, b"{")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"seq_id": 1}', "model_id: is missing"),
        (b'{"model_id": "m", "seq_id": "1"}', "seq_id: must be a valid integer"),
        (b'{"model_id": "m", "seq_id": 0}', "seq_id: must be greater than or equal to 1"),
        (b'{"model_id": "m", "seq_id": 1, "nesterov": true}', "nesterov: is not a field of this request"),
        (b'{"model_id": "m", "seq_id": 1, "adam_params": {"beta1": 1.0}}', "adam_params.beta1: must be less than 1"),
        (b"[]", "body: "),
    ],
)
def test_a_problem_names_its_field(body, message):
    with pytest.raises(FieldInvalid) as caught:
        read_json(OptimStepRequest, body)
    assert str(caught.value).startswith(message)


def test_several_problems_are_told_together():
    with pytest.raises(FieldInvalid, match="model_id: is missing; seq_id: is missing"):
        read_json(OptimStepRequest, b"{}")


def test_the_turn_of_a_refused_request_is_found_where_it_can_be():
    assert named_turn(b'{"model_id": "m", "seq_id": 3, "x": NaN}') == ("m", 3)
    for body in (
        b"{",
        b"[1]",
        b'{"model_id": "m"}',
        b'{"model_id": 1, "seq_id": 3}',
        b'{"model_id": "m", "seq_id": true}',
        b'{"model_id": "\\ud800", "seq_id": 3}',
        b'{"model_id": "m", "seq_id": 3, "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    ):
        assert named_turn(body) is None


def test_metadata_values_become_strings():
    session = read_json(CreateSession, b'{"user_metadata": {"a": "x", "b": 3, "c": [1, null]}}')
    assert session.user_metadata == {"a": "x", "b": "3", "c": "[1, null]"}


def test_metadata_is_bounded():
    body = b'{"user_metadata": {"a": "' + b"x" * 40_000 + b'"}}'
    with pytest.raises(FieldInvalid, match="user_metadata: holds 40001 characters"):
        read_json(CreateSession, body)


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        (CreateSession, b'{"tags": [' + b"1," * 1000 + b"1]}"),
        (SampleRequest, b'{"prompt": {"chunks": [{"tokens": [' + b'"",' * 1000 + b'""]}]}}'),
        (ScoreRequest, b'{"texts": [' + b"1," * 1000 + b"1]}"),
    ],
)
def test_a_long_list_of_mistakes_is_told_by_its_first(shape, body):
    with pytest.raises(FieldInvalid) as caught:
        read_json(shape, body)
    assert "[1]" not in str(caught.value)


def test_metadata_of_many_keys_is_refused_uncounted():
    body = b'{"user_metadata": {' + b",".join(b'"%d": 1' % number for number in range(2000)) + b"}}"
    with pytest.raises(FieldInvalid, match="user_metadata: has 2000 keys; at most 1024 are kept"):
        read_json(CreateSession, body)
