"""What a broker does its own way while it is the controller, by its settings."""

from dataclasses import dataclass
from typing import Final

from barnabas.controller.replication_rules import RulesOf, default_rules


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    rules_of: RulesOf = default_rules
    rebalance_seconds: float | None = None
    """How often preferred replicas are made leaders again; None: only when somebody asks."""
    imbalance_percent_max: int = 10
    """How many of the partitions that a broker should lead may be led by others, in percent."""


DEFAULT_OPTIONS: Final = ControllerOptions()
