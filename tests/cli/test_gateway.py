from pathlib import Path

import pytest

from openrl.cli.gateway import run
from openrl.cli.ports import free_port
from openrl.config import Gateway, Settings
from openrl.domain.errors import DepotUnreachable, SettingInvalid


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"redis_url": "http://host"}, SettingInvalid),
        ({"redis_url": "redis://127.0.0.1:1", "depot_url": "nosuch://x"}, DepotUnreachable),
    ],
)
def test_a_start_ends_with_what_an_operator_must_mend(
    settings: dict[str, str], error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        run(Settings(data_dir=tmp_path, gateway=Gateway(port=free_port()), **settings))
