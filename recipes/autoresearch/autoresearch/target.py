"""One run of the target's command: in a fresh worktree of its commit, with a seed, within its time."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from autoresearch import processes, readings
from autoresearch.config import Research, filled
from autoresearch.errors import Crashed
from autoresearch.processes import Mark
from autoresearch.readings import last_line
from autoresearch.store import Attempt, Options, Record, Run
from autoresearch.worktrees import Worktrees

SEARCHING, CONFIRMING = 0, 1  #: what {problems} becomes


@dataclass(frozen=True, slots=True)
class Target:
    research: Research
    folder: Path  #: the research folder
    record: Record
    worktrees: Worktrees
    mark: Mark
    python: str

    async def run(self, attempt: Attempt, seed: int, problems: int, seconds: float) -> Run:
        """Raises Crashed where the command fails, takes longer than `seconds`, or does not tell its metric."""
        own = self.record.of(attempt.number)
        out, log = own / f"seed-{seed}", own / f"seed-{seed}.log"
        place = self.record.worktree(attempt.number).with_name(f"{attempt.number:04}-{seed}")
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        assert attempt.commit is not None
        self.worktrees.add(place, attempt.commit)
        try:
            ending = await self._start(self._command(attempt, seed, problems, place, out), place, log, seconds)
        except OSError as error:
            raise Crashed(f"the command cannot be started: {error}") from None
        finally:
            self.worktrees.remove(place)
        if ending.status is None:
            raise Crashed(f"seed {seed}: its time was up ({seconds:.0f} s)")
        if ending.status != 0:
            raise Crashed(f"seed {seed}: the command ended with status {ending.status}: {last_line(log)}")
        return readings.run(seed, self.research.metric, log, out, ending.seconds)

    def _command(self, attempt: Attempt, seed: int, problems: int, place: Path, out: Path) -> list[str]:
        places: dict[str, object] = {
            "python": self.python,
            "research": self.folder,
            "folder": place,
            "seed": seed,
            "problems": problems,
            "out": out,
        }
        return filled(self.research.command, places) + as_words(attempt.options)

    async def _start(self, command: list[str], place: Path, log: Path, seconds: float) -> processes.Ending:
        return await processes.run(
            command,
            cwd=place,
            variables=processes.environment(self.research.environment, "environment", self.record.folder),
            home=log.with_suffix(".home"),
            log=log,
            seconds=seconds,
            mark=self.mark.of(place.name),
        )


def as_words(options: Options) -> list[str]:
    """Options as the command line takes them: `--lr 0.0003`; a boolean is `--flag` or `--no-flag`."""
    words: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", str(value)]
    return words
