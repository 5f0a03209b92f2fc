"""What of the file system a child may read: what Python itself needs, and the packages that were imported.

The standard library, the folders of installed packages, the system's shared libraries and time zones. Of a folder on
the module path that is none of these (a working copy, a current folder), only the packages that were imported from it.
"""

import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SYSTEM: Final = tuple(
    map(
        Path,
        ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache"),
    )
)


def readable() -> tuple[Path, ...]:
    """Called once everything is imported."""
    libraries = {*_libraries()}
    packages = {path for path in _imported() if not any(path.is_relative_to(library) for library in libraries)}
    return (*SYSTEM, *sorted(libraries), *sorted(packages))


def _libraries() -> Iterator[Path]:
    paths = sysconfig.get_paths()
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield Path(paths[name]).resolve()
    yield Path(sys.base_prefix, "lib").resolve() if sys.base_prefix not in ("/", "/usr") else Path("/usr/lib")
    for folder in site.getsitepackages():
        yield Path(folder).resolve()


def _imported() -> Iterator[Path]:
    """The folder or file of every top-level package in memory."""
    for name, module in tuple(sys.modules.items()):
        if "." in name or name == "__main__":
            continue
        for folder in getattr(module, "__path__", ()):
            yield Path(folder).resolve()
        file = getattr(module, "__file__", None)
        if file and not hasattr(module, "__path__"):
            yield Path(file).resolve()
