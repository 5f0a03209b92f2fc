import argparse

import pytest
import rig


def asked(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    rig.add_common(parser)
    return parser.parse_args(words)


def test_a_server_that_runs_elsewhere_is_measured_as_it_is() -> None:
    with rig.serving(asked("--base-url", "http://127.0.0.1:1/", "--api-key", "tml-key"), "tiny") as served:
        assert served == rig.Served("http://127.0.0.1:1", "tml-key", "tiny")


def test_a_server_without_its_key_is_refused_with_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    with (
        pytest.raises(SystemExit, match="--api-key"),
        rig.serving(asked("--base-url", "http://127.0.0.1:1"), "tiny"),
    ):
        pass
