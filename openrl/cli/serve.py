"""`openrl serve`: everything on one machine, from the first check to the last process gone."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress

from openrl.cli import home, preflight
from openrl.cli.board import Board, print_exports
from openrl.cli.broker import Broker, choose
from openrl.cli.child import kill_group
from openrl.cli.crew import Crew, Event
from openrl.cli.keys import local_key
from openrl.cli.lineup import awaiting_own, lineup
from openrl.cli.orphans import Watcher
from openrl.cli.plan import WORKERS, Choices, base_url, broker_component, components
from openrl.cli.probes import connect
from openrl.cli.program import Program
from openrl.cli.stopping import Stopped, StopSignals
from openrl.config import Settings
from openrl.domain.errors import BaseModelMissing, LedgerUnreachable
from openrl.ledger.roster import RedisRoster
from openrl.ledger.scripts import lapse
from openrl.models.catalogue import Listed

TICK_SECONDS = 0.05


def serve(settings: Settings, choices: Choices, own: Mapping[str, str], *, key: str | None, verbose: bool) -> int:
    """Run until a signal says stop, or until the chosen program ends; leaves no process behind.

    `own` is this process's environment, `key` a given one. Answers the program's exit status, 0 without one.
    Raises OperatorError with the sentence that helps, before anything heavy starts where that is possible.
    """
    signals = StopSignals()
    with ExitStack() as closing:
        closing.enter_context(signals.caught())
        closing.enter_context(home.locked(settings.home))
        settings = preflight.with_threads(preflight.with_ports(settings), choices)
        settings = awaiting_own(settings, choices.base_models)
        preflight.check(settings, choices)
        watcher = Watcher()
        closing.callback(watcher.close)
        serving = Serving(settings, choices, own, watcher, signals, Board(follow=verbose))
        closing.callback(serving.stop)
        try:
            serving.start(key)
            return serving.run()
        except Stopped:
            return 0


class Serving:
    """One machine's service while it starts, runs and stops."""

    def __init__(
        self,
        settings: Settings,
        choices: Choices,
        own: Mapping[str, str],
        watcher: Watcher,
        signals: StopSignals,
        board: Board,
    ) -> None:
        self._settings, self._choices, self._own = settings, choices, own
        self._watcher, self._signals, self._board = watcher, signals, board
        self._crew = Crew(watcher, self._tell)
        self._is_up = False
        self._program: Program | None = None

    def start(self, key: str | None) -> None:
        """Returns when everything is ready. Raises Stopped, OperatorError."""
        self._fetch_models()
        secret = local_key(self._settings, key)
        self._board.loading(self._crew)
        if self._settings.redis_url is None:
            self._start_broker()
        self._crew.add(components(self._settings, self._choices, self._own, secret))
        self._until_ready()
        self._is_up = True
        self._write_status()
        self._board.ready()
        url = base_url(self._settings)
        if self._choices.program:
            self._program = Program(self._choices.program, self._own, url=url, secret=secret)
            self._program.watched_by(self._watcher, WORKERS)
            return
        self._board.say(f"OpenRL serves {', '.join(self._models)}. In the shell of your program:")
        print_exports(url, secret)

    def run(self) -> int:
        """Look after everybody until a signal comes or the program ends; its exit status. Raises ComponentDied."""
        while not self._signals.came:
            if self._program is not None and self._program.exit_status is not None:
                return self._program.exit_status
            self._tick()
        return 0

    def stop(self) -> None:
        self._board.ready()
        if self._program is not None:
            self._program.stop(self._watcher)
        if self._crew.members and self._signals.came:
            self._board.say("stopping (again to hurry)")
        self._crew.stop(self._signals.hurry)
        self._board.follow(self._crew.members.values())
        home.remove_status(self._settings.home)

    @property
    def _models(self) -> tuple[str, ...]:
        return tuple(model.base_model for model in lineup(self._settings, self._choices.base_models))

    def _fetch_models(self) -> None:
        absent = preflight.to_pull(self._settings, self._choices)
        for model in absent:
            self._fetch(model)
        if absent:
            preflight.check_models(self._settings, self._choices)

    def _fetch(self, model: Listed) -> None:
        """Pull a listed base model that is not here yet, in a process of its own, because converting needs torch."""
        place = str(self._settings.home / "models")
        command = [sys.executable, "-m", "openrl.cli.main", "models", "pull", model.name, "--to", place]
        pull = subprocess.Popen(command, start_new_session=True)
        self._watcher.watch(pull.pid, WORKERS, 2.0)
        while pull.poll() is None and not self._signals.came:
            time.sleep(TICK_SECONDS)
        _interrupt(pull)
        self._watcher.forget(pull.pid)
        if self._signals.came:
            raise Stopped
        if pull.returncode:
            raise BaseModelMissing(model.name, "it could not be fetched; the reason is above")

    def _start_broker(self) -> None:
        broker = choose(self._settings.home / "broker")
        self._settings = self._settings.model_copy(update={"redis_url": broker.url})
        self._crew.add([broker_component(broker, self._settings, self._own)])
        self._until_ready()
        _withdraw_others(broker, self._models)

    def _until_ready(self) -> None:
        while not self._crew.is_ready:
            if self._signals.came:
                raise Stopped
            self._tick()

    def _tick(self) -> None:
        self._crew.tick()
        self._board.follow(self._crew.members.values())
        time.sleep(TICK_SECONDS)

    def _tell(self, event: Event) -> None:
        self._board.tell(event)
        if event.exit_status is not None and event.member.component.stop_rank == WORKERS:
            self._bury(event.member.child.pid)
        if self._is_up and event.exit_status is None:
            self._write_status()

    def _bury(self, pid: int) -> None:
        """What a worker held when it died is waited for no longer."""
        assert self._settings.redis_url is not None
        with suppress(LedgerUnreachable), connect(self._settings.redis_url) as client:
            roster = RedisRoster(client)
            for worker in roster.workers():
                if (worker.host, worker.pid) == (socket.gethostname(), pid):
                    lapse(client, worker.id)
                    roster.leave(worker.id)

    def _write_status(self) -> None:
        """For `openrl status`, scripts and tests; the process ids are the present ones."""
        settings = self._settings
        parts = {
            name: {"pid": member.child.pid, "address": member.component.address, "log": str(member.component.log)}
            for name, member in self._crew.members.items()
        }
        home.write_status(
            settings.home, url=base_url(settings), models=self._models, broker=settings.redis_url, parts=parts
        )


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """End it, if it still runs, as Ctrl-C would: it then clears away what it has half done."""
    if process.poll() is None:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=5.0)
    kill_group(process.pid)
    process.wait()


def _withdraw_others(broker: Broker, models: Collection[str]) -> None:
    """An earlier start may have served other models; nobody else uses this broker."""
    with connect(broker.url) as client:
        roster = RedisRoster(client)
        for card in roster.cards():
            if card.name not in models:
                roster.withdraw(card.name)
