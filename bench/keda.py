"""How many workers KEDA and the Horizontal Pod Autoscaler would have, by their documented rules. Pure: told times and
metrics, it starts nothing.

KEDA looks every `polling_seconds`. It wakes a deployment that has no worker while the metric is above `activation`, and
puts one to sleep that was not active for `cooldown_seconds`. From one worker on the HPA decides, every `sync_seconds`:
ceil(metric / target), nothing within `tolerance`, never up by more than a doubling or 4 at once, and down to the most
that it would have had within `stabilization_seconds`.
"""

from collections import deque
from dataclasses import dataclass, field
from math import ceil


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Kubernetes' defaults; a bench has shorter times."""

    target: float  #: of the metric, for one worker
    most: int
    activation: float = 0.0
    polling_seconds: float = 30.0
    cooldown_seconds: float = 300.0
    sync_seconds: float = 15.0
    stabilization_seconds: float = 300.0
    tolerance: float = 0.1

    def faster(self, times: float) -> "Rules":
        """The same with all times divided."""
        return Rules(
            target=self.target,
            most=self.most,
            activation=self.activation,
            polling_seconds=self.polling_seconds / times,
            cooldown_seconds=self.cooldown_seconds / times,
            sync_seconds=self.sync_seconds / times,
            stabilization_seconds=self.stabilization_seconds / times,
            tolerance=self.tolerance,
        )


@dataclass(slots=True)
class Scaler:
    rules: Rules
    replicas: int = 0
    _polled_at: float = float("-inf")
    _synced_at: float = float("-inf")
    _active_at: float = float("-inf")
    _wanted: deque[tuple[float, int]] = field(default_factory=deque)  #: what the HPA would have had, and when

    def tick(self, now: float, metric: float | None) -> int:
        """The workers that there should be from now on. A metric that cannot be read changes nothing."""
        if metric is None:
            return self.replicas
        if now - self._polled_at >= self.rules.polling_seconds:
            self._polled_at = now
            self._poll(now, metric)
        if self.replicas and now - self._synced_at >= self.rules.sync_seconds:
            self._synced_at = now
            self.replicas = self._sync(now, metric)
        return self.replicas

    def _poll(self, now: float, metric: float) -> None:
        if metric > self.rules.activation:
            self._active_at = now
            if not self.replicas:
                self.replicas = 1
        elif self.replicas and now - self._active_at >= self.rules.cooldown_seconds:
            self.replicas = 0
            self._wanted.clear()

    def _sync(self, now: float, metric: float) -> int:
        rules = self.rules
        ratio = metric / (rules.target * self.replicas)
        wanted = self.replicas if abs(ratio - 1) <= rules.tolerance else ceil(metric / rules.target)
        wanted = min(max(wanted, 1), rules.most)
        self._wanted.append((now, wanted))
        while self._wanted[0][0] < now - rules.stabilization_seconds:
            self._wanted.popleft()
        if wanted > self.replicas:
            return min(wanted, max(2 * self.replicas, self.replicas + 4))
        return min(self.replicas, max(each for _, each in self._wanted))
