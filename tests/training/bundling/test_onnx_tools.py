"""Tests of what exporters and quantizers print."""

import logging
import warnings

import pytest

from training.bundling.onnx_tools import quiet


def test_advice_and_warnings_are_discarded_while_quiet_alone(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with quiet():
        print("progress")
        logging.getLogger().warning("advice")
        warnings.warn("internal", stacklevel=1)
    assert (capsys.readouterr().out, caplog.text) == ("", "")
    logging.getLogger().warning("after")
    assert "after" in caplog.text
