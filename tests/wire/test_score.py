import json

import pytest

from openrl.domain.errors import FieldInvalid
from openrl.wire.base import read_json
from openrl.wire.score import ScoreRequest, to_score


def score(**fields):
    request = {"key": "12345678", "reward": "exact", "texts": ["a", "b"]} | fields
    return to_score(read_json(ScoreRequest, json.dumps(request).encode()))


def test_contexts_default_to_empty_ones():
    assert score().contexts == ({}, {})
    assert score(contexts=[{"answer": "a"}, {}]).contexts == ({"answer": "a"}, {})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"texts": []}, "texts: "),
        ({"texts": ["a", 1]}, "texts[1]: must be a valid string"),
        ({"contexts": [{}]}, "contexts: has 1 entries for 2 texts"),
        ({"contexts": [{}, {"a": 1}]}, "contexts[1].a: must be a valid string"),
        ({"reward": ""}, "reward: "),
        ({"key": "short"}, "key: "),
        ({"reward": "judge"}, "reward: judge is asked about rollouts only"),
    ],
)
def test_a_wrong_request_is_refused_by_the_name_of_its_field(fields, problem):
    with pytest.raises(FieldInvalid) as caught:
        score(**fields)
    assert str(caught.value).startswith(problem)
