"""All mutants by name."""

from collections.abc import Mapping
from typing import Final

from tests.sim.mutants import (
    broker_mutants,
    client_mutants,
    durability_mutants,
    group_mutants,
    log_mutants,
    replication_mutants,
)
from tests.sim.mutants.planting import Mutant

_MODULES: Final = (durability_mutants, log_mutants, broker_mutants, group_mutants, client_mutants, replication_mutants)

MUTANTS: Final[Mapping[str, Mutant]] = {mutant.name: mutant for module in _MODULES for mutant in module.mutants.all}
