"""`python -m barnabas.sim` (`make sim`)."""

import sys

from barnabas.sim.runs.command import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
