"""TLS before a server that speaks none, as a managed broker has it: with a certificate of its own authority."""

import asyncio
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from openrl.cli.ports import LOCAL


def certificate(folder: Path) -> tuple[Path, Path]:
    """Of localhost, signed by itself, and its key."""
    certificate, key = folder / "broker.crt", folder / "broker.key"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", f"subjectAltName=DNS:localhost,IP:{LOCAL}"]
    subprocess.run([*made, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


@contextmanager
def before(port: int, certificate: Path, key: Path) -> Iterator[int]:
    """A port whose connections go on to another without TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()

    async def pass_on(read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        inner_read, inner_write = await asyncio.open_connection(LOCAL, port)
        await asyncio.gather(_pump(read, inner_write), _pump(inner_read, write))

    server = loop.run_until_complete(asyncio.start_server(pass_on, LOCAL, 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        server.close()
        loop.close()


async def _pump(read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, ssl.SSLError):
        while data := await read.read(65536):
            write.write(data)
            await write.drain()
    write.close()
