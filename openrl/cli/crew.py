"""The running components: obeys `supervisor`'s verdicts, reports what happens. Knows no terminal."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from openrl.cli import supervisor
from openrl.cli.child import Child, Component, make_room, start, stop, tail
from openrl.cli.errors import ComponentDied, ComponentRefused
from openrl.cli.orphans import Watcher
from openrl.cli.supervisor import ERROR_MARK, Life, Phase, Rules, Verdict

PROBE_SECONDS = 0.25  #: between two questions whether a component is ready
TAIL_LINES = 20


@dataclass(slots=True)
class Member:
    component: Component
    child: Child
    life: Life
    probed_at: float = 0.0

    @property
    def is_ready(self) -> bool:
        return self.life.phase is Phase.READY


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to tell: a component got ready, or died and rests."""

    member: Member
    exit_status: int | None = None  #: None: it got ready
    again: bool = False  #: ready, and not for the first time


class Crew:
    def __init__(self, watcher: Watcher, tell: Callable[[Event], None], rules: Rules | None = None) -> None:
        self._watcher, self._tell, self._rules = watcher, tell, rules or Rules()
        self.members: dict[str, Member] = {}

    @property
    def is_ready(self) -> bool:
        return all(member.is_ready for member in self.members.values())

    def add(self, components: Iterable[Component]) -> None:
        for component in components:
            make_room(component.log)
            child = self._start(component)
            self.members[component.name] = Member(component, child, supervisor.born(time.monotonic()))

    def tick(self) -> None:
        """Look after everybody once. Raises ComponentRefused, ComponentDied where starting again is no use."""
        now = time.monotonic()
        for member in self.members.values():
            if supervisor.due(member.life, now):
                member.child = self._start(member.component)
                member.life = supervisor.reborn(member.life, now)
            elif member.life.phase is not Phase.RESTING:
                self._look_after(member, now)

    def stop(self, hurry: Callable[[], bool]) -> None:
        """End everybody in order; answers when nobody is left."""
        stop([member.child for member in self.members.values()], hurry)
        for member in self.members.values():
            self._watcher.forget(member.child.pid)

    def _start(self, component: Component) -> Child:
        child = start(component)
        self._watcher.watch(child.pid, component.stop_rank, component.grace_seconds)
        return child

    def _look_after(self, member: Member, now: float) -> None:
        status = member.child.exit_status()
        if status is not None:
            self._bury(member, status, now)
        elif member.life.phase is Phase.STARTING and now - member.probed_at >= PROBE_SECONDS:
            member.probed_at = now
            self._probe(member)

    def _probe(self, member: Member) -> None:
        if member.component.is_ready(member.child.pid):
            again = member.life.was_ready
            member.life = supervisor.ready(member.life, time.monotonic())
            self._tell(Event(member=member, again=again))

    def _bury(self, member: Member, status: int, now: float) -> None:
        stop([member.child])  # what it may have left behind
        self._watcher.forget(member.child.pid)
        verdict, member.life = supervisor.died(member.life, status, now, self._rules)
        log = member.component.log
        if verdict is Verdict.REFUSED:
            raise ComponentRefused(member.component.name, last_error(tail(log, TAIL_LINES)))
        if verdict is Verdict.HOPELESS:
            what = f"{supervisor.in_words(status)}, {member.life.early_deaths} times before it was ready"
            raise ComponentDied(member.component.name, what, str(log), tail(log, TAIL_LINES))
        self._tell(Event(member=member, exit_status=status))


def last_error(lines: tuple[str, ...]) -> str:
    """The sentence of the last error line, else the last line."""
    for line in reversed(lines):
        if line.startswith(ERROR_MARK):
            return line.removeprefix(ERROR_MARK)
    return lines[-1] if lines else "it said nothing"
