import pytest

from openrl.domain import errors
from openrl.gateway.faults import response_of, status_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.FieldInvalid("a", "b"), 422),
        (errors.TurnPassed("r", 1), 422),
        (errors.ModelUnknown("m", ()), 422),
        (errors.BodyInvalid("x"), 400),
        (errors.BodyTooLarge(1), 413),
        (errors.KeyRejected("x"), 401),
        (errors.RunNotFound("r"), 404),
        (errors.CheckpointMissing("r"), 404),
        (errors.TooManyWaiting(1), 429),
        (errors.NoWorker("m"), 429),
        (errors.LedgerUnreachable("x"), 429),
        (errors.DepotUnreachable("u", "x"), 503),
        (errors.CatalogUnreachable("u", "x"), 503),
    ],
)
def test_each_branch_has_its_status_and_a_body(error, status):
    response = response_of(error)
    assert (status_of(error), response.status_code) == (status, status)
    assert str(error).encode()[:10] in response.body
    assert int(response.headers["content-length"]) == len(response.body) > 0
    assert ("retry-after" in response.headers) == (status in (429, 503))


def test_every_error_has_a_status():
    leaves = [errors.OpenRLError, *vars(errors).values()]
    kinds = [kind for kind in leaves if isinstance(kind, type) and issubclass(kind, errors.OpenRLError)]
    for kind in set(kinds) - {errors.OpenRLError}:
        assert status_of(kind.__new__(kind)) >= 400


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/checkpoints?limit=x", "limit: must be a valid integer, unable to parse string as an integer"),
        ("/checkpoints?limit=100000", "limit: must be less than or equal to 1000"),
        ("/sessions?offset=-1", "offset: must be greater than or equal to 0"),
    ],
)
def test_a_wrong_parameter_is_named(http, path, detail):
    response = http.get(path)
    assert (response.status_code, response.json()) == (422, {"detail": detail})
