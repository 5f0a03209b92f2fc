"""Runs that train all weights: they learn, are saved and sampled as themselves, and outlive their worker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tinker
import torch
from living import Server, wait_for
from loops import PROMPT, TARGET, greedy, sft_datum, train
from transformers import AutoModelForCausalLM

import openrl

pytestmark = pytest.mark.live

RATE = 1e-3


@pytest.fixture(scope="module")
def full_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("full")
    server = Server.start(home, "--no-flower", "--dtype", "float32", OPENRL_TRAIN__FULL_RUNS="true")
    yield server
    server.stop()


def snapshots(server: Server) -> list[Path]:
    """Of full runs."""
    return list(server.home.glob("depot/snapshots/*/full-run.safetensors"))


def plain_losses(model: Path, steps: int) -> list[float]:
    """`loops.train` once more, with transformers and PyTorch's AdamW."""
    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        total = torch.zeros(())
        for prompt in (PROMPT, [21, 22, 23]):
            tokens = torch.tensor([*prompt, *TARGET])
            lp = module(input_ids=tokens[None, :-1]).logits[0].log_softmax(1).gather(1, tokens[1:, None])
            total = total - lp[-len(TARGET) :].sum()
        total.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(total.detach()))
    return losses


def test_a_full_run_learns_is_sampled_as_itself_and_outlives_its_worker(full_server: Server) -> None:
    service = tinker.ServiceClient(
        base_url=full_server.url,
        api_key=full_server.api_key,
        default_headers_overrides=openrl.FULL_RUN_HEADERS,
    )
    plain = tinker.ServiceClient(base_url=full_server.url, api_key=full_server.api_key)
    base = plain.create_sampling_client(base_model="tiny").result()
    untouched = greedy(base)
    client = service.create_lora_training_client(base_model="tiny").result()
    info = client.get_info()
    assert (info.is_lora, info.lora_rank) == (False, None)
    beside = plain.create_lora_training_client(base_model="tiny", rank=4, seed=1).result()

    losses = train(client, steps=5, rate=RATE)
    full_server.kill("device worker")  # nothing was in a snapshot
    losses += train(client, steps=5, rate=RATE)
    path = client.save_state("ten").result().path
    sampler = client.save_weights_and_get_sampling_client().result()
    then = greedy(sampler)
    with_adapter = train(beside, steps=10)
    wait_for("a snapshot", lambda: bool(snapshots(full_server)))
    losses += train(client, steps=3, rate=RATE)
    full_server.kill("device worker")
    losses += train(client, steps=3, rate=RATE)

    wanted = plain_losses(full_server.home / "models" / "tiny", len(losses))
    assert losses == pytest.approx(wanted, rel=1e-3), "no op was lost or applied twice"
    assert losses[-1] < losses[0] / 4
    assert with_adapter[-1] < with_adapter[0]

    # What is sampled is the run as it was saved, and the base model is what it was.
    fresh = client.save_weights_and_get_sampling_client().result()
    tokens = [*PROMPT, *TARGET]
    scored = fresh.compute_logprobs(tinker.ModelInput.from_ints(tokens)).result()
    trained = client.forward([sft_datum()], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].to_numpy()
    assert scored[1:] == pytest.approx(trained, abs=1e-4)
    assert greedy(fresh) == TARGET
    assert greedy(sampler) == then
    assert greedy(base) == untouched
    assert len(snapshots(full_server)) == 1

    # The seat is in use; the run itself can go back to where it was.
    with pytest.raises(tinker.RequestFailedError, match="another run that trains all weights"):
        service.create_training_client_from_state_with_optimizer(path).result()
    with pytest.warns(FutureWarning, match="DEPRECATED"):
        client.load_state_with_optimizer(path).result()
    assert train(client, steps=2, rate=RATE) == pytest.approx(wanted[10:12], rel=1e-3)


def test_a_server_that_does_not_train_all_weights_says_so(server: Server) -> None:
    service = tinker.ServiceClient(
        base_url=server.url, api_key=server.api_key, default_headers_overrides=openrl.FULL_RUN_HEADERS
    )
    with pytest.raises(tinker.UnprocessableEntityError, match="OPENRL_TRAIN__FULL_RUNS=true"):
        service.create_lora_training_client(base_model="tiny").result()
