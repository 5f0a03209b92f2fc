import socket

import pytest

from openrl.cli.errors import PortTaken
from openrl.cli.ports import free_port, listening, require_port
from openrl.domain.errors import SettingInvalid


def test_a_taken_port_is_told_with_its_name() -> None:
    with listening("first", "127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"^gateway: port {port} is taken; stop what listens there"):
            require_port("gateway", "127.0.0.1", port)


def test_a_port_is_free_again_when_its_server_has_gone() -> None:
    port = free_port()
    with listening("server", "127.0.0.1", port) as server, socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = server.accept()
        accepted.close()  # the server closes first, so that its side stays in TIME_WAIT
        client.recv(1)
    require_port("server", "127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.9", "no.such.host.invalid"])
def test_an_address_that_is_not_here_is_told(host: str) -> None:
    with pytest.raises(SettingInvalid, match=f"cannot listen on {host} port 8000"):
        require_port("gateway", host, 8000)
