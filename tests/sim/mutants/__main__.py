"""`python -m tests.sim.mutants`. The command is a module of its own, so that its processes can import it."""

import sys

from tests.sim.mutants.command import main

if __name__ == "__main__":
    sys.exit(main())
