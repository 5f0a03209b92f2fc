import json
import struct
from pathlib import Path

import pytest

from openrl.cli import machine
from openrl.cli.errors import ModelWontFit, PackageMissing


def _folder(tmp_path: Path, millions: int) -> Path:
    """A model folder whose safetensors header tells so many parameters; nothing reads further."""
    header = {"__metadata__": {}, "w": {"dtype": "BF16", "shape": [millions, 1000, 1000], "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    return tmp_path


def test_parameters_are_counted_from_the_headers(tmp_path: Path) -> None:
    assert machine.parameters(_folder(tmp_path, 135)) == 135_000_000


def test_float32_needs_twice_the_memory_of_bfloat16(tmp_path: Path) -> None:
    folder = _folder(tmp_path, 1000)
    assert machine.needed_gb(folder, "bfloat16", copies=1) == pytest.approx(2 + machine.PROCESS_GB)
    assert machine.needed_gb(folder, "float32", copies=1) == pytest.approx(4 + machine.PROCESS_GB)
    assert machine.needed_gb(folder, "float32", copies=2) == pytest.approx(2 * (4 + machine.PROCESS_GB))


def test_a_model_larger_than_the_memory_is_refused_with_both_figures(tmp_path: Path) -> None:
    with pytest.raises(ModelWontFit, match=r"needs about 4001\.0 GB of memory and [\d.]+ GB are free"):
        machine.require_memory([_folder(tmp_path, 1_000_000)], "float32", "cpu", copies=1)


def test_what_a_gpu_holds_is_not_judged_here(tmp_path: Path) -> None:
    machine.require_memory([_folder(tmp_path, 1_000_000)], "float32", "cuda", copies=1)


def test_a_missing_package_is_told_with_the_command_that_installs_it() -> None:
    with pytest.raises(PackageMissing, match=r"no_such_package is not installed; run: pip install 'openrl\[serve\]'"):
        machine.require_packages(["json", "no_such_package"])
    assert machine.missing_packages(["nowhere.at.all"]) == ["nowhere.at.all"]
