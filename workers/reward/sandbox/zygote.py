"""A zygote: a fresh interpreter that has imported what its children need and forks them, each behind walls of its own.
There is one for children that score, and a small one for those that run the model's code.

It never sees a text or a context, so that no child inherits one. Its orders come on the socket whose number it is
given; when that closes it ends, and every child with it. Tried with `nursery.py`, which is the other side.
"""

import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from workers.reward import catalogue
from workers.reward.sandbox import frames, namespaces
from workers.reward.sandbox.child import TASKS, scoring
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.limits import Limits
from workers.reward.sandbox.readable import readable
from workers.reward.sandbox.spent import own_number
from workers.reward.sandbox.walls import enclose, lacking, strongest

ORDER_BYTES: Final = 1 << 16
HANDLES: Final = 4096  #: more than a zygote ever opens


def main() -> None:
    """`python … FILENO LEVEL TASK`, where the level may be `auto`."""
    orders, asked, task = socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3]
    level = strongest() if asked == "auto" else Level(asked)
    if asked != "auto" and (why := lacking(level)):
        frames.send(orders, {"lacking": why})
        return
    if level is Level.STRONG:
        _become_first(orders)
    with tempfile.TemporaryDirectory(prefix="openrl-sandbox-") as folders:
        Zygote(orders, level, task, Path(folders)).serve()


def _become_first(orders: socket.socket) -> None:
    """Go on as process 1 of new namespaces; what remains of this process waits for it."""
    namespaces.enter()
    pid = os.fork()
    if pid == 0:
        namespaces.end_with_parent()
        return
    orders.close()
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)


class Zygote:
    def __init__(self, orders: socket.socket, level: Level, task: str, folders: Path) -> None:
        self._orders, self._level, self._task, self._folders = orders, level, TASKS[task], folders
        self._children: dict[int, Path] = {}
        self._over: dict[int, tuple[int, float]] = {}  #: of children that ended, status and seconds
        self._catalogue = catalogue.load() if self._task is scoring else catalogue.Catalogue()
        self._readable = readable()
        gc.collect()
        gc.freeze()  # what children share with this process stays shared

    def serve(self) -> None:
        """Greet, then carry out orders until there are none to come."""
        frames.send(
            self._orders, {"level": self._level, "readable": [*map(str, self._readable)], **self._catalogue.facts()}
        )
        with suppress(frames.Ended):
            while True:
                order, pipe = self._next_order()
                frames.send(self._orders, self._carried_out(order, pipe))
        for pid in tuple(self._children):
            self._end(pid)

    def _carried_out(self, order: dict[str, Any], pipe: socket.socket | None) -> dict[str, Any]:
        if "end" in order:
            return self._end(order["end"])
        if "look" in order:
            return {"over": self._is_over(order["look"])}
        try:
            return self._fork(order, pipe)
        except OSError as error:  # no memory or no process to be had now
            return {"failed": str(error)}

    def _next_order(self) -> tuple[dict[str, Any], socket.socket | None]:
        data, handles, _, _ = socket.recv_fds(self._orders, ORDER_BYTES, 1)
        if not data:
            raise frames.Ended
        order: dict[str, Any] = json.loads(data)
        return order, socket.socket(fileno=handles[0]) if handles else None

    def _fork(self, order: dict[str, Any], pipe: socket.socket | None) -> dict[str, Any]:
        assert pipe is not None
        folder = self._folders if self._level is Level.STRONG else Path(tempfile.mkdtemp(dir=self._folders))
        mother = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_child(order, pipe, folder, mother)
        pipe.close()
        self._children[pid] = folder
        return {"pid": pid, "folder": str(folder)}

    def _be_child(self, order: dict[str, Any], pipe: socket.socket, folder: Path, mother: int) -> None:
        """Never returns; whatever goes wrong ends the process, so that nothing is ever done without walls."""
        status = 70
        try:
            os.setsid()
            namespaces.end_with_parent()
            if os.getppid() != mother:
                os._exit(status)
            self._orders.close()
            pipe = _alone_with(pipe)
            os.environ.update(HOME=str(folder), TMPDIR=str(folder))
            tempfile.tempdir = str(folder)
            _enclosed(self._level, self._readable, folder, Limits(**order["limits"]), pipe)
            self._task(pipe, self._catalogue)
            status = 0
        finally:
            os._exit(status)

    def _end(self, pid: int) -> dict[str, Any]:
        """Kill the child and all that it began, and tell how it ended."""
        by_itself = self._is_over(pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        if not by_itself:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._wait(pid, 0)
        status, seconds = self._over.pop(pid)
        folder = self._children.pop(pid)
        if folder != self._folders:
            _remove(folder)
        return {"status": status, "cpu_seconds": seconds, "by_itself": by_itself}

    def _is_over(self, pid: int) -> bool:
        """Whether the child has ended, or is none of ours any more."""
        if pid in self._children and pid not in self._over:
            self._wait(pid, os.WNOHANG)
        return pid in self._over or pid not in self._children

    def _wait(self, pid: int, how: int) -> None:
        ended, status, used = os.wait4(pid, how)
        if ended:
            self._over[pid] = (os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime)


def _enclosed(level: Level, readable: tuple[Path, ...], folder: Path, limits: Limits, pipe: socket.socket) -> None:
    """Tells the worker whether the walls stand. Raises OSError where they do not."""
    number = own_number()
    try:
        enclose(level, readable, folder, limits)
    except OSError as error:
        frames.send(pipe, {"failed": f"the walls do not stand: {error}"})
        raise
    frames.send(pipe, {"ready": number})


def _alone_with(pipe: socket.socket) -> socket.socket:
    """Close every descriptor but the pipe, which becomes number 3; the standard ones lead nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    if pipe.fileno() != 3:
        os.dup2(pipe.fileno(), 3)
    os.closerange(4, HANDLES)
    family, kind = pipe.family, pipe.type
    pipe.detach()
    return socket.socket(family, kind, fileno=3)


def _remove(folder: Path) -> None:
    """Even one nested deeper than Python's own way gets."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        subprocess.run(["rm", "-rf", str(folder)], check=False, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
