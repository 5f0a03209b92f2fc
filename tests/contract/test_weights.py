import pytest
import tinker
from tinker import types

ADAM = types.AdamParams(learning_rate=1e-3)
PROMPT = types.ModelInput.from_ints([5])


@pytest.fixture
def rest(gateway):
    return tinker.RestClient(base_url=gateway.url, api_key=gateway.key)


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_a_run_begins_where_another_was_saved(gateway, service, training, with_optimizer):
    path = training.save_state("step-1").result().path
    assert path == f"tinker://{training.get_info().model_id}/weights/step-1"
    create = (
        service.create_training_client_from_state_with_optimizer
        if with_optimizer
        else service.create_training_client_from_state
    )
    second = create(path).result()
    assert second.get_info().lora_rank == 8
    loaded = gateway.worker.seen[-1].action
    assert (loaded.path, loaded.with_optimizer, loaded.lora.rank) == (path, with_optimizer, 8)
    second.optim_step(ADAM).result()


def test_named_sampler_weights_can_be_sampled(gateway, service, training):
    path = training.save_weights_for_sampler("p").result().path
    sampler = service.create_sampling_client(model_path=path).result()
    assert sampler.get_base_model() == "toy"
    sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1)).result()
    assert gateway.services.depot.has_folder(gateway.worker.seen[-1].action.policy)
    sampler = service.create_sampling_client(model_path=training.save_state("s").result().path).result()
    sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1)).result()


def test_a_name_is_given_once_unless_it_is_to_be_overwritten(training):
    training.save_state("a").result()
    with pytest.raises(tinker.RequestFailedError, match="exists already"):
        training.save_state("a").result()
    training.save_state("a", overwrite=True).result()
    training.optim_step(ADAM).result()


def test_a_bad_name_is_refused_and_the_run_goes_on(training):
    with pytest.raises(tinker.UnprocessableEntityError, match=r"path: '\.\./x' cannot name a checkpoint"):
        training.save_state("../x").result()
    training.optim_step(ADAM).result()


def test_checkpoints_are_listed_kept_for_a_time_and_deleted(training, rest):
    run = training.get_info().model_id
    path = training.save_state("a", user_metadata={"n": "1"}).result().path
    training.save_weights_for_sampler("b").result()
    assert rest.get_training_run(run).result().last_checkpoint.tinker_path == path
    listed = rest.list_checkpoints(run).result().checkpoints
    assert [(each.checkpoint_id, each.checkpoint_type) for each in listed] == [
        ("weights/a", "training"),
        ("sampler_weights/b", "sampler"),
    ]
    assert path in [each.tinker_path for each in rest.list_user_checkpoints(limit=1000).result().checkpoints]
    assert run in [each.training_run_id for each in rest.list_training_runs(limit=1000).result().training_runs]
    rest.set_checkpoint_ttl_from_tinker_path(path, 3600).result()
    assert rest.list_checkpoints(run).result().checkpoints[0].expires_at is not None
    rest.set_checkpoint_ttl_from_tinker_path(path, None).result()
    assert rest.list_checkpoints(run).result().checkpoints[0].expires_at is None
    assert rest.get_weights_info_by_tinker_path(path).result().lora_rank == 8
    rest.delete_checkpoint_from_tinker_path(path).result()
    assert len(rest.list_checkpoints(run).result().checkpoints) == 1
    with pytest.raises(tinker.NotFoundError):
        rest.delete_checkpoint_from_tinker_path(path).result()
