"""Brings what follows from elsewhere up to date in the chart: README's table of values, from values.yaml with its
comments, and the schema of `settings`, from openrl.config. `--check` only tells whether something is not current."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from openrl.config import Settings

CHART = Path(__file__).parent / "openrl"
START, END = "<!-- values: made by helm/generate.py -->", "<!-- end of values -->"
#: Settings that the chart derives from other values or from where pods are; a second way to say them would lose.
CHARTS_OWN = frozenset(
    {
        *("data_dir", "redis_url", "catalog_url", "depot_url", "base_model", "model_aliases", "flower_port", "metrics"),
        *("gateway.host", "gateway.port", "gateway.awaited_models", "gateway.awaited_aliases"),
        *("worker.device", "worker.events", "worker.sandbox", "sample.vllm.tensor_parallel"),
    }
)
_KEPT = ("type", "enum", "items", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def main() -> int:
    wanted = {CHART / "README.md": with_table(), CHART / "values.schema.json": with_settings()}
    old = [path for path, text in wanted.items() if path.read_text() != text]
    if "--check" not in sys.argv:
        for path in old:
            path.write_text(wanted[path])
        return 0
    for path in old:
        print(f"{path} is not current; run: python helm/generate.py", file=sys.stderr)
    return 1 if old else 0


# ------------------------------------------------------------------------------------------------ README
def with_table() -> str:
    text = (CHART / "README.md").read_text()
    before, after = text.split(START)[0], text.split(END)[1]
    rows = "\n".join(f"| `{path}` | {default} | {about} |" for path, default, about in values())
    return f"{before}{START}\n| value | default | |\n|---|---|---|\n{rows}\n{END}{after}"


def values() -> Iterator[tuple[str, str, str]]:
    """Path, default and comment of every value, in the file's order."""
    text = (CHART / "values.yaml").read_text()
    yield from _rows(yaml.compose(text), yaml.safe_load(text), text.splitlines(), "")


def _rows(node: yaml.Node, value: Any, lines: list[str], prefix: str) -> Iterator[tuple[str, str, str]]:
    for key, below in node.value:
        path, own = f"{prefix}{key.value}", value[key.value]
        about = _comment(lines, key.start_mark.line)
        if isinstance(own, dict) and own and not below.flow_style:
            if about:
                yield path, "", about
            yield from _rows(below, own, lines, f"{path}.")
        else:
            yield path, f"`{json.dumps(own)}`", about


def _comment(lines: list[str], at: int) -> str:
    """The comment right above a line, as one line."""
    found: list[str] = []
    while at > 0 and lines[at - 1].lstrip().startswith("#"):
        at -= 1
        found.insert(0, lines[at].lstrip().removeprefix("#").strip())
    return " ".join(found).replace("|", "\\|")


# ------------------------------------------------------------------------------------------------ schema
def with_settings() -> str:
    schema = json.loads((CHART / "values.schema.json").read_text())
    whole = Settings.model_json_schema()
    schema["$defs"]["settings"] = _plain(whole, whole["$defs"], "")
    return json.dumps(schema, indent=2) + "\n"


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Without names, defaults and references, and without what the chart sets itself."""
    if "$ref" in schema:
        return _plain(definitions[schema["$ref"].rpartition("/")[2]], definitions, path)
    if "properties" not in schema:
        return {key: schema[key] for key in _KEPT if key in schema}
    names = [name for name in schema["properties"] if _path(path, name) not in CHARTS_OWN]
    below = {name: _plain(schema["properties"][name], definitions, _path(path, name)) for name in names}
    return {"type": "object", "additionalProperties": False, "properties": below}


def _path(*names: str) -> str:
    return ".".join(name for name in names if name)


if __name__ == "__main__":
    raise SystemExit(main())
