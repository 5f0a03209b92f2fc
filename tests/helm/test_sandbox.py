"""The level of the sandbox in a reward pod: with its rights, and without the calls that runtimes' own seccomp profile
refuses to a process that has no capabilities."""

import json
import os
import platform
import subprocess
import sys

import pytest
from charting import ROOT, rendered, workloads

from workers.reward.sandbox import landlock, syscalls

#: Refuses `unshare`, `setns`, `mount` and new namespaces by `clone`; `clone3` is answered as if there were none.
POD = """
import runpy, sys
from workers.reward.sandbox import seccomp
REFUSE, ALLOW, UNKNOWN = 0x00050001, 0x7FFF0000, 0x00050026
NAMESPACES = 0x7E020000
steps = [(0x20, 0, 0, 0)]
for number in (272, 308, 165):
    steps += [(0x15, 0, 1, number), (0x06, 0, 0, REFUSE)]
steps += [(0x15, 0, 1, 435), (0x06, 0, 0, UNKNOWN)]
steps += [(0x15, 0, 4, 56), (0x20, 0, 0, 16), (0x54, 0, 0, NAMESPACES), (0x15, 1, 0, 0), (0x06, 0, 0, REFUSE)]
steps += [(0x06, 0, 0, ALLOW)]
seccomp.no_new_privileges()
ours, seccomp.program = seccomp.program, lambda: steps
seccomp.install()
seccomp.program = ours
print(runpy.run_module("workers.reward.sandbox.walls", run_name="__main__") and "")
"""
#: Root without capabilities is what any user is, as far as they go.
UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the profile is spelled for Linux on x86-64"
)
@pytest.mark.skipif(not syscalls.known() or landlock.version() < 1, reason="this kernel has no Landlock")
def test_a_reward_pod_has_the_level_that_it_asks_for() -> None:
    before = UNPRIVILEGED if os.getuid() == 0 else []
    done = subprocess.run([*before, sys.executable, "-c", POD], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lacking = json.loads(done.stdout)
    assert lacking["strong"].startswith("namespaces are forbidden")
    assert lacking["kernel"] == ""
    (work,) = (work for work in workloads(rendered(preset="kind")) if work.component == "reward")
    variables = {each["name"]: each.get("value") for each in work.pod["containers"][0]["env"]}
    assert variables["OPENRL_WORKER__SANDBOX"] == "kernel"


def test_another_profile_and_level_can_be_asked_for() -> None:
    values = (
        "reward.sandbox=strong,reward.seccompProfile.type=Localhost,reward.seccompProfile.localhostProfile=openrl.json"
    )
    (work,) = (each for each in workloads(rendered("--set", values, preset="kind")) if each.component == "reward")
    assert work.pod["securityContext"]["seccompProfile"] == {"type": "Localhost", "localhostProfile": "openrl.json"}
