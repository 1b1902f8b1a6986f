"""Tests of the table of protocols."""

import ast
import subprocess
import sys

import pytest
from pydantic import ValidationError

from service.settings import DEFAULT_PROTOCOLS, EXTRAS, NATIVE, PROTOCOLS, Settings, protocol_names


def test_names_are_separated_by_commas():
    assert protocol_names("native, deepl,") == ("native", "deepl")
    assert protocol_names(DEFAULT_PROTOCOLS) == (NATIVE, *(name for name in PROTOCOLS if name not in EXTRAS))
    assert protocol_names("") == ()


def test_an_unknown_name_is_refused():
    with pytest.raises(
        ValidationError, match=r"unknown protocol 'soap'; known protocols: native, oip, openai, deepl, .*"
    ):
        Settings(protocols="native,soap")


def test_a_protocol_needs_its_extra(monkeypatch):
    monkeypatch.setattr("service.settings.find_spec", lambda name: None)
    with pytest.raises(ValidationError, match=r"softserve\[mcp\]"):
        Settings(protocols="native,mcp")


def test_a_protocol_that_is_off_is_not_imported():
    code = """
import sys
from service.server.app import create_app
from service.settings import Settings
create_app(Settings(models=("next-word:4",), protocols="native"))
print([name for name in sys.modules if name.startswith("service.protocols.") and name.count(".") == 2])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(found.stdout) == ["service.protocols.protocol"]
