import importlib
import sys

import pytest

from colligate.errors import MissingExtra


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langchain_core.callbacks", "langchain"),
        ("llamaindex", "llama_index.core.callbacks", "llamaindex"),
        ("inspect", "inspect_ai.solver", "inspect"),
    ],
)
def test_without_its_package_an_adapter_names_the_extra(monkeypatch, module, package, extra):
    monkeypatch.delitem(sys.modules, f"colligate.integrations.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"colligate\[{extra}\]"):
        importlib.import_module(f"colligate.integrations.{module}")
