"""Imports kio without hypothesis, which every other module here that uses kio does by importing this one first.

Where hypothesis is installed, kio imports it and tells it of its types: a quarter of a second that only tests of kio
could want, and that every start of a broker in a developer's environment would pay. A hypothesis that was imported
before is left alone.
"""

import sys
from typing import Any, Final, cast

_HYPOTHESIS: Final = "hypothesis"

if _HYPOTHESIS not in sys.modules:
    cast(dict[str, Any], sys.modules)[_HYPOTHESIS] = None  # whoever imports it now gets an ImportError
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules[_HYPOTHESIS]
