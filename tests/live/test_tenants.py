"""Several clients at once: nobody's numbers depend on who else is there."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tinker
from living import Server
from loops import train
from safetensors.numpy import load

from openrl.catalog.repository import Catalog
from openrl.depot.filesystem import FsspecDepot
from openrl.domain.checkpoint import CheckpointPath

pytestmark = pytest.mark.live

RANKS = {4: [101, 202, 303], 8: [44, 55, 66], 16: [400, 401, 402]}


def trained_weights(server: Server, rank: int) -> dict[str, np.ndarray]:
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    client = service.create_lora_training_client(base_model="tiny", rank=rank, seed=rank, train_mlp=rank != 8).result()
    train(client, steps=12, target=RANKS[rank])
    return saved_weights(server.home, server.api_key, client.save_state("end").result().path)


def saved_weights(home: Path, api_key: str, path: str) -> dict[str, np.ndarray]:
    catalog = Catalog(f"sqlite:///{home / 'catalog.db'}")
    checkpoint = catalog.checkpoint(catalog.tenant_of_key(api_key), CheckpointPath.parse(path))
    catalog.close()
    return load(FsspecDepot(f"file://{home / 'depot'}").get_folder(checkpoint.key)["adapter_model.safetensors"])


def test_concurrent_clients_of_different_ranks_end_where_each_ends_alone(server: Server) -> None:
    alone = {rank: trained_weights(server, rank) for rank in RANKS}
    with ThreadPoolExecutor(len(RANKS)) as pool:
        together = dict(zip(RANKS, pool.map(lambda rank: trained_weights(server, rank), RANKS), strict=True))
    for rank in RANKS:
        assert alone[rank].keys() == together[rank].keys()
        for name, weight in alone[rank].items():
            np.testing.assert_allclose(together[rank][name], weight, rtol=1e-3, atol=1e-5, err_msg=name)


def test_another_tenants_ids_do_not_exist(server: Server, service: tinker.ServiceClient) -> None:
    client = service.create_lora_training_client(base_model="tiny", rank=4).result()
    path = client.save_weights_for_sampler("mine").result().path
    state = client.save_state("mine").result().path
    catalog = Catalog(f"sqlite:///{server.home / 'catalog.db'}")
    _, key = catalog.create_key("somebody else")
    catalog.close()
    stranger = tinker.ServiceClient(base_url=server.url, api_key=key)
    rest = tinker.RestClient(base_url=server.url, api_key=key)
    for ask in (
        lambda: stranger.create_sampling_client(model_path=path).result(),
        lambda: rest.get_training_run_by_tinker_path(path).result(),
        lambda: stranger.create_training_client_from_state(state).result(),
    ):
        with pytest.raises(tinker.NotFoundError):
            ask()
