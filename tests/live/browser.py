"""Pages as a person sees them: in a Chromium without a window, which runs their scripts."""

import os
import shutil
import subprocess
from tempfile import TemporaryDirectory

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: Of the page's own clock, which stands still while the page waits for the network.
SCRIPT_MILLISECONDS = 5000


def program() -> str:
    """The browser; without one the test is skipped, and fails where all must run."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        message = "no Chromium on the PATH; `make browser` installs Debian's, or says what to do"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return found


def page(url: str) -> str:
    """The HTML of a page once its scripts have run. A user and password in the URL answer what the server asks for;
    without them the question is not answered."""
    with TemporaryDirectory(prefix="openrl-browser-") as home:
        # The page is our own, and its sandbox asks for rights that root in a container does not have.
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        asked = ["--dump-dom", f"--virtual-time-budget={SCRIPT_MILLISECONDS}", url]
        command = [program(), *options, f"--user-data-dir={home}", *asked]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, env={**os.environ, "HOME": home})
    assert done.returncode == 0, done.stderr
    return done.stdout
