"""Imports kio without hypothesis. Every other module here that uses kio imports this one first.

Where hypothesis is installed, kio imports it and registers its types there. That takes a quarter of a second at every
start of a broker in a developer's environment, and only tests of kio need it. A hypothesis that was imported before is
left alone.
"""

import sys
from typing import Any, Final, cast

_HYPOTHESIS: Final = "hypothesis"

if _HYPOTHESIS not in sys.modules:
    cast(dict[str, Any], sys.modules)[_HYPOTHESIS] = None  # importing it now raises ImportError
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules[_HYPOTHESIS]
