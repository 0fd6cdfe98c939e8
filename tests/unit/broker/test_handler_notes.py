"""Every handler's file opens with its APIs and their versions, as they are served."""

import importlib
import pkgutil
from types import ModuleType

import pytest

from barnabas.broker import handlers
from barnabas.wire.apis import APIS, Api

APIS_BY_HANDLER = {f"{api.name}Handler": api for api in APIS.values()}


def modules() -> list[ModuleType]:
    found = [
        importlib.import_module(f"{handlers.__name__}.{one.name}") for one in pkgutil.iter_modules(handlers.__path__)
    ]
    return [module for module in found if apis_of(module)]


def apis_of(module: ModuleType) -> list[Api]:
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return [APIS_BY_HANDLER[name] for name in own if name in APIS_BY_HANDLER]


def versions_text(api: Api) -> str:
    if api.version_min == api.version_max:
        return f"version {api.version_min}:"
    joined = "and" if api.version_max == api.version_min + 1 else "to"
    return f"versions {api.version_min} {joined} {api.version_max}:"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__.rpartition(".")[2])
def test_handler_says_its_apis_and_versions_and_then_its_notes(module: ModuleType) -> None:
    assert module.__doc__ is not None
    first, blank, *notes = module.__doc__.splitlines()
    for api in apis_of(module):
        assert api.name in first
        assert versions_text(api) in first
    assert not blank
    assert notes[0].startswith("- ")


def test_every_api_has_a_handler_of_its_name() -> None:
    assert {api.name for module in modules() for api in apis_of(module)} == {api.name for api in APIS.values()}
