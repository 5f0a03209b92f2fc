"""Optuna's TPE over the options that the toml declares. Several settings may be out at once: a constant liar stands in
for what they will come to, so that the next one is not the same again."""

from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from autoresearch.config import Number, Research, Setting
from autoresearch.proposers import Proposal
from autoresearch.store import Attempt

ATTEMPT = "attempt"  #: the attribute of a trial that says whose it is
LEARNED = (TrialState.COMPLETE, TrialState.FAIL)


class Search:
    def __init__(self, research: Research, base: str, database: Path, known: list[Attempt]) -> None:
        """`known`: attempts of earlier starts. Trials that none of them has were lost, and are told as failed."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = {name: _distribution(setting) for name, setting in research.space.items()}
        self._defaults = {name: _plain(setting, setting.default) for name, setting in research.space.items()}
        self._base = base
        self._study = optuna.create_study(
            storage=f"sqlite:///{database}",
            sampler=_sampler(research, len(known)),
            study_name="research",
            direction="maximize" if research.metric.mode == "max" else "minimize",
            load_if_exists=True,
        )
        self._forget_lost({attempt.number for attempt in known if attempt.state != "begun"})

    async def propose(self, attempt: Attempt, parent: Attempt | None) -> Proposal:
        if parent is None:
            return Proposal(self._base, dict(self._defaults))
        trial = self._study.ask(self._space)
        trial.set_user_attr(ATTEMPT, attempt.number)
        return Proposal(self._base, dict(trial.params))

    def learn(self, attempt: Attempt) -> None:
        trial = self._trial(attempt.number)
        if trial is not None and trial.state in LEARNED:
            return
        metric = attempt.metric() if attempt.usable() else None
        if trial is None:  # the default, which was not asked for
            self._study.add_trial(_as_trial(attempt, metric, self._space))
        elif metric is None:
            self._study.tell(trial.number, state=TrialState.FAIL)
        else:
            self._study.tell(trial.number, metric)

    def _trial(self, attempt: int) -> FrozenTrial | None:
        """The newest: an earlier one of the same attempt was lost with a harness."""
        trials = reversed(self._study.get_trials(deepcopy=False))
        return next((trial for trial in trials if trial.user_attrs.get(ATTEMPT) == attempt), None)

    def _forget_lost(self, kept: set[int]) -> None:
        for trial in self._study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
            if trial.user_attrs.get(ATTEMPT) not in kept:
                self._study.tell(trial.number, state=TrialState.FAIL)


def _sampler(research: Research, known: int) -> optuna.samplers.TPESampler:
    """Random at first: for a third of the attempts, or as many as run at once. `known` makes the seed another after a
    restart, where the same one would draw the same settings again."""
    budget = research.budget
    return optuna.samplers.TPESampler(
        n_startup_trials=max(budget.at_once, budget.attempts // 3), constant_liar=True, seed=known
    )


def _as_trial(attempt: Attempt, metric: float | None, space: dict[str, BaseDistribution]) -> FrozenTrial:
    return create_trial(
        state=TrialState.FAIL if metric is None else TrialState.COMPLETE,
        value=metric,
        params=attempt.options,
        distributions=space,
        user_attrs={ATTEMPT: attempt.number},
    )


def _distribution(setting: Setting) -> BaseDistribution:
    if not isinstance(setting, Number):
        return CategoricalDistribution(setting.choices)
    if setting.type == "float":
        return FloatDistribution(setting.low, setting.high, log=setting.log, step=setting.step)
    return IntDistribution(int(setting.low), int(setting.high), log=setting.log, step=int(setting.step or 1))


def _plain(setting: Setting, value: Any) -> Any:
    return int(value) if isinstance(setting, Number) and setting.type == "int" else value
