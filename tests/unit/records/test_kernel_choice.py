"""Which form of the record kernel is used."""

import runpy
import sys
from typing import Any

import pytest

from barnabas.records import kernel, reference
from tests.support.kernels import each_kernel


def test_kernel_that_could_not_be_compiled_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "barnabas.records._kernel", None)
    names = runpy.run_path(kernel.__file__)
    assert names["IS_COMPILED"] is False
    assert names["walk_records"] is reference.walk_records


@each_kernel
def test_kernel_in_either_form_offers_every_name(kernel: Any) -> None:
    assert [name for name in reference.__all__ if not hasattr(kernel, name)] == []
