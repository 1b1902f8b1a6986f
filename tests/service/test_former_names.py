"""Names of the former tree, which other packages may use for one version."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("former", "name", "present"),
    [
        ("service.app", "create_app", "service.server.app"),
        ("service.api.endpoint", "register", "service.http.endpoint"),
        ("service.api.requests", "Texts", "service.http.requests"),
        ("service.api.route", "ModelRoute", "service.http.route"),
        ("service.api.answer", "Answer", "service.http.answer"),
    ],
)
def test_former_names_are_the_present_ones_with_a_warning(former, name, present):
    code = f"from {former} import {name} as a; from {present} import {name} as b; assert a is b"
    finished = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True)
    assert "DeprecationWarning: service." in finished.stderr
