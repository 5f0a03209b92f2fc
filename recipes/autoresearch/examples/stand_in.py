"""A scripted stand-in for a coding agent's command line: to see the harness at work, and to test it, without any agent.

    python stand_in.py --history HISTORY --attempt N STEP …

Attempt N takes the N-th step (and begins again when they are used up):

    KEY=VALUE   sets a value in settings.json, beside what is there
    nothing     changes nothing
    crash       fails
    forbidden   makes the edit that would win, to a file that it may not touch
    hang        never ends
    stray=PATH  leaves a process behind in a session of its own, which would write to PATH after a second
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=Path, required=True, help="as the harness wrote it")
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("steps", nargs="+")
    options = parser.parse_args()
    step = options.steps[(options.attempt - 1) % len(options.steps)]
    print(f"attempt {options.attempt}: I know of {len(json.loads(options.history.read_text()))} attempts; now: {step}")
    match step.partition("="):
        case "nothing", _, _:
            pass
        case "crash", _, _:
            sys.exit("the stand-in fails, as it was told")
        case "forbidden", _, _:
            Path("target.py").write_text("print('score: 1e9')\n")
        case "hang", _, _:
            time.sleep(3600)
        case "stray", _, path:
            later = f"import time; time.sleep(1); open({path!r}, 'w').close(); time.sleep(3600)"
            subprocess.Popen([sys.executable, "-c", later], start_new_session=True)
            change("stray", "true")
        case key, _, value:
            change(key, value)


def change(key: str, value: str) -> None:
    path = Path("settings.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: json.loads(value)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
