"""The recipe autoresearch as its README starts it, with real processes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import tinker
from living import Server, sdk_environment, wait_for

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

RECIPE = Path(__file__).parents[3] / "recipes" / "autoresearch"
#: Notes each of its starts, takes a moment, and is the better the larger `lr`.
TARGET = """
import json, os, pathlib, sys, time
seed, out, lr = int(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[4])
with open(NOTES, "a") as notes:
    notes.write(f"{lr} {seed}\\n")
time.sleep(0.5)
(out / "problems.json").write_text(json.dumps([lr + seed / 100 + place / 50 for place in range(4)]))
print(f"score: {lr}")
"""
TOML = """
command = ["{python}", "{folder}/target.py", "{seed}", "{out}"]
[metric]
name = "score"
mode = "max"
problems = "problems.json"
[budget]
attempts = 6
at_once = 2
seconds = 30
seeds = 2
confirm_seeds = 2
[space.lr]
type = "float"
low = 0.0
high = 1.0
default = 0.1
"""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to run in: records lie beside the examples."""
    place = tmp_path_factory.mktemp("autoresearch") / "examples"
    shutil.copytree(RECIPE / "examples", place, ignore=shutil.ignore_patterns("record*"))
    return place


def environment(**more: str) -> dict[str, str]:
    return sdk_environment() | {"PYTHONPATH": str(RECIPE), "COLUMNS": "200"} | more


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "autoresearch", *words]


def start(*words: str, **more: str) -> dict[str, str]:
    """Runs it to its end; the `name: value` lines come back."""
    done = subprocess.run(command(*words), capture_output=True, text=True, env=environment(**more), timeout=280)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return dict(re.findall(r"^(\w+): (.*)$", done.stdout, re.MULTILINE))


def attempts(record: Path) -> dict[int, dict[str, Any]]:
    files = sorted((record / "attempts").glob("*/attempt.json"))
    return {told["number"]: told for told in (json.loads(file.read_text()) for file in files)}


def of_record(record: Path) -> list[psutil.Process]:
    """Processes that a harness started for this record."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("AUTORESEARCH_MARK", "").startswith(str(record)) and process.status() != "zombie":
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_a_search_finds_better_settings_and_confirms_them(examples: Path) -> None:
    told = start("run", str(examples / "tiny"), "--attempts", "5")
    assert told["attempts"] == "5" and told["crashed"] == "0" and int(told["kept"]) >= 1
    assert float(told["confirmed_metric"]) > float(told["confirmed_default"])
    page = (examples / "tiny" / "record" / "report.html").read_text()
    assert page.count('<details id="attempt-') == 6 and "http://" not in re.sub(r"base64,[^\"]*", "", page)
    assert start("status", str(examples / "tiny"))["best"] == told["best"]
    assert start("report", str(examples / "tiny"), "--out", str(examples / "page.html"))
    assert (examples / "page.html").read_text() == page
    again = ["--record", str(examples / "again"), "--like", str(examples / "tiny" / "record"), "--at-once", "1"]
    assert (
        start("run", str(examples / "tiny"), "--attempts", "5", *again, "--no-confirm")["best_metric"]
        == told["best_metric"]
    )


def test_an_agents_good_edits_are_kept_and_its_bad_ones_cost_nothing_but_themselves(examples: Path) -> None:
    told = start("run", str(examples / "tiny" / "autoresearch-agent.toml"))
    assert (told["kept"], told["crashed"], told["refused"]) == ("2", "1", "2")
    found = attempts(examples / "tiny" / "record-agent")
    assert found[2]["reason"].startswith("the agent ended with status 1")
    assert found[3]["reason"] == "it edited what it may not: target.py (but only settings.json)"
    assert found[6]["outcome"] == "kept" and found[6]["parent"] == 1
    assert json.loads((examples / "tiny" / "settings.json").read_text())["lr"] == 0.05


def test_a_harness_that_was_killed_leaves_nobody_behind_and_goes_on(tmp_path: Path) -> None:
    place, notes = tmp_path / "research", tmp_path / "notes"
    place.mkdir()
    (place / "program.md").write_text("Larger is better.\n")
    (place / "autoresearch.toml").write_text(TOML)
    (place / "target.py").write_text(TARGET.replace("NOTES", repr(str(notes))))
    record = place / "record"
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen(command("run", str(place)), env=environment(), stdout=out, stderr=out)

    def is_mid_way() -> bool:
        ended = [told for told in attempts(record).values() if told["state"] == "ended"]
        assert process.poll() is None, (tmp_path / "out").read_text()
        return len(ended) >= 2 and len(of_record(record)) >= 1

    wait_for("two attempts to end", is_mid_way, 90)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = attempts(record)
    wait_for("what it had started to be ended", lambda: not of_record(record), 20)
    started = notes.read_text().splitlines()
    told = start("run", str(place))
    after = attempts(record)
    assert told["attempts"] == "6" and set(after) == set(range(7)) and not of_record(record)
    ended = [number for number, one in before.items() if one["state"] == "ended"]
    assert len(ended) >= 2 and all(before[number]["runs"] == after[number]["runs"] for number in ended)
    proposed = [number for number, one in before.items() if one["options"]]
    assert all(before[number]["options"] == after[number]["options"] for number in proposed)
    again = notes.read_text().splitlines()[len(started) :]
    searched = {f"{before[number]['options']['lr']} {seed}" for number in ended for seed in range(2)}
    assert not searched & set(again)


def test_it_stops_at_ctrl_c_with_a_word_on_how_to_go_on(tmp_path: Path) -> None:
    place = tmp_path / "research"
    place.mkdir()
    (place / "program.md").write_text("Larger is better.\n")
    (place / "autoresearch.toml").write_text(TOML)
    began = "import pathlib, sys, time; (pathlib.Path(sys.argv[2]) / 'began').touch(); time.sleep(60)\n"
    (place / "target.py").write_text(began)
    process = subprocess.Popen(command("run", str(place)), env=environment(), stderr=subprocess.PIPE, text=True)
    wait_for("both targets to run", lambda: len(list(place.rglob("began"))) == 2, 60)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=90)
    assert process.returncode == 130 and "the same command goes on from here" in said and "Traceback" not in said
    assert not of_record(place / "record")


def test_attempts_train_on_one_service_at_once(server: Server, examples: Path) -> None:
    toml = examples / "service" / "autoresearch.toml"
    quick = '"--steps", "2", "--rollouts", "16", "--reward-seconds", "0", "--seed"'
    toml.write_text(toml.read_text().replace('"--seed"', quick).replace("confirm_seeds = 5", "confirm_seeds = 2"))
    where = {"TINKER_BASE_URL": server.url, "TINKER_API_KEY": server.api_key}
    told = start("run", str(toml), "--attempts", "3", "--at-once", "3", **where)
    found = attempts(Path(told["report"]).parent)
    assert told["crashed"] == "0" and set(found) == {0, 1, 2, 3}
    began_and_ended = [(found[number]["began"], found[number]["ended"]) for number in (0, 1, 2)]
    assert max(began for began, _ in began_and_ended) < min(ended for _, ended in began_and_ended)
    assert all(len(run["problems"]) == 16 and len(run["curve"]) == 2 for run in found[1]["runs"])


@pytest.fixture(scope="module")
def text_to_sql(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example beside a recipe text_to_sql, with runs of one update of four replies."""
    recipes = tmp_path_factory.mktemp("smoke") / "recipes"
    place = recipes / "autoresearch" / "examples"
    shutil.copytree(RECIPE / "examples", place, ignore=shutil.ignore_patterns("record*"))
    (recipes / "text_to_sql").symlink_to(RECIPE.parent / "text_to_sql")
    quick = '"--steps", "1", "--rollouts", "4", "--eval-problems", "3", "--seed"'
    for toml in (place / "text_to_sql").glob("*.toml"):
        toml.write_text(toml.read_text().replace('"--seed"', quick).replace("confirm_seeds = 5", "confirm_seeds = 1"))
    return place / "text_to_sql"


@pytest.mark.parametrize(
    ("toml", "outcomes"), [("autoresearch.toml", {}), ("autoresearch-agent.toml", {2: "crashed", 3: "refused"})]
)
def test_attempts_on_text_to_sql_share_one_server(
    server: Server, text_to_sql: Path, toml: str, outcomes: dict[int, str]
) -> None:
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    trainer = service.create_lora_training_client("tiny", rank=4, train_unembed=False).result()
    state = trainer.save_state("sft").result().path
    where = {"TINKER_BASE_URL": server.url, "TINKER_API_KEY": server.api_key, "SFT_STATE": state}
    told = start("run", str(text_to_sql / toml), "--attempts", "3", "--at-once", "3", **where)
    found = attempts(Path(told["report"]).parent)
    for number in range(4):
        wanted = outcomes.get(number, "dropped" if number else "kept")
        assert found[number]["outcome"] == wanted, found[number]["reason"]
    [run] = found[0]["runs"]
    assert len(run["problems"]) == 3 and len(run["curve"]) == 1


def test_it_installs_as_a_program(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(RECIPE, source, ignore=shutil.ignore_patterns("record*"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(source)]
    subprocess.run(install, check=True)
    done = subprocess.run(
        [str(site / "bin" / "autoresearch"), "report", "--help"],
        capture_output=True,
        text=True,
        env=sdk_environment() | {"PYTHONPATH": os.pathsep.join([str(site)])},
        timeout=60,
    )
    assert done.returncode == 0 and "one HTML page" in done.stdout
    assert (site / "autoresearch" / "report.html.j2").exists()
