import pytest
import tinker

from openrl.gateway.doubles import toy_gateway


def test_the_client_starts_without_a_dynamic_config(tmp_path, connect):
    def without(app):
        async def wrapped(scope, receive, send):
            known = scope.get("path") != "/api/v1/client/dynamic_config"
            return await app(scope if known else {**scope, "path": "/api/v1/gone"}, receive, send)

        return wrapped

    with toy_gateway(tmp_path, wrap=without) as gateway, connect(gateway) as service:
        service.create_lora_training_client("toy", rank=8).result()


def test_a_session_knows_what_was_made_in_it(gateway, service, training):
    rest = tinker.RestClient(base_url=gateway.url, api_key=gateway.key)
    sampler = service.create_sampling_client(base_model="toy").result()
    run = training.get_info().model_id
    session = run.split(":")[0]
    found = rest.get_session(session).result()
    assert run in found.training_run_ids
    assert session in rest.list_sessions(limit=1000).result().sessions
    assert found.sampler_ids
    assert rest.get_sampler(found.sampler_ids[-1]).result().base_model == sampler.get_base_model()


def test_models_are_listed(gateway):
    rest = tinker.RestClient(base_url=gateway.url, api_key=gateway.key)
    models = rest.get_server_capabilities().result().supported_models
    assert [(each.model_name, each.max_context_length) for each in models] == [("toy", 64), ("openrl/toy", 64)]


def test_a_finished_session_is_finished(gateway, connect):
    with connect(gateway) as service:
        run = service.create_lora_training_client("toy", rank=8).result().get_info().model_id
    found = gateway.services.catalog.session(gateway.services.tenant(gateway.key), run.split(":")[0])
    assert found.finish_reason == "success"


def test_a_wrong_key_is_refused_at_once(gateway, connect):
    with pytest.raises(tinker.AuthenticationError, match="unknown key"):
        connect(gateway, key="tml-wrong").create_lora_training_client("toy", rank=8).result()


def test_an_unknown_model_is_refused_with_the_known_ones(service):
    with pytest.raises(tinker.UnprocessableEntityError, match="served models: toy"):
        service.create_lora_training_client("gpt-9", rank=8).result()
    with pytest.raises(tinker.UnprocessableEntityError, match=r"lora_config\.rank: is 64; toy takes ranks 1\.\.32"):
        service.create_lora_training_client("toy", rank=64).result()
