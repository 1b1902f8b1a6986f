from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import BUNDLED, Settings


def test_the_defaults_serve_the_bundled_models_to_this_machine_alone():
    settings = Settings()
    assert (settings.host, settings.backend, settings.device) == ("127.0.0.1", "onnx", "cpu")
    assert (settings.model_dirs, settings.models) == ((BUNDLED,), ())
    assert list(BUNDLED.glob("next-word/*/manifest.json"))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "0", 0),
        ("threads", "3", 3),
        ("device", "cuda:0,tensorrt:1", "cuda:0,tensorrt:1"),
        ("max_delay_ms", "2.5", 2.5),
        ("models", '["a", "b:2"]', ("a", "b:2")),
        ("model_dirs", '["/x", "/y"]', (Path("/x"), Path("/y"))),
        ("log_level", "debug", "debug"),
    ],
)
def test_every_setting_has_an_environment_twin(monkeypatch, name, text, value):
    monkeypatch.setenv(f"SOFTSERVE_{name.upper()}", text)
    assert getattr(Settings(), name) == value


@pytest.mark.parametrize("name", ["SOFTSERVE_STARVATION_LIMIT_MS", "SOFTSERVE_MAX_OVERTAKEN_MS"])
def test_a_variable_that_was_renamed_goes_on_working(monkeypatch, name):
    monkeypatch.setenv("STARVATION_LIMIT_MS", "4")
    monkeypatch.setenv(name, "5")
    assert Settings().starvation_limit_ms == 5
    assert Settings(starvation_limit_ms=6).starvation_limit_ms == 6


def test_flags_win_over_the_environment(monkeypatch):
    monkeypatch.setenv("SOFTSERVE_PORT", "9000")
    assert Settings(port=9001).port == 9001


@pytest.mark.parametrize("link", ["tcp://10.96.44.7:8000", "tcp://[fd00:10:96::1c]:80"])
def test_service_links_of_kubernetes_are_no_ports(monkeypatch, link):
    monkeypatch.setenv("SOFTSERVE_PORT", link)
    monkeypatch.setenv("SOFTSERVE_GRPC_PORT", link)
    assert (Settings().port, Settings().grpc_port) == (8000, None)


@pytest.mark.parametrize(
    "text",
    [
        "tcp://",
        "tcp://10.96.44.7",
        "tcp://10.96.44.7:",
        "udp://10.96.44.7:8000",
        " tcp://10.96.44.7:8000",
        "tcp://a/b:80",
    ],
)
def test_other_texts_are_refused_as_ports(monkeypatch, text):
    monkeypatch.setenv("SOFTSERVE_PORT", text)
    with pytest.raises(ValidationError, match="port"):
        Settings()


def test_variables_of_others_are_ignored(monkeypatch):
    monkeypatch.setenv("PORT", "9000")
    monkeypatch.setenv("SOFTSERVE_UNHEARD_OF", "1")
    assert Settings().port == 8000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("port", "abc"),
        ("port", ""),
        ("threads", 0),
        ("backend", "tensorflow"),
        ("device", "tpu"),
        ("device", "cpu:1"),
        ("device", "cuda:x"),
        ("device", "cuda:0,"),
        ("device", "cuda:0,,cuda:1"),
        ("device", "cpu cuda"),
        ("parallel_batches", 0),
        ("model_dirs", ()),
        ("max_batch_items", 0),
        ("max_batch_tokens", 0),
        ("max_delay_ms", -0.1),
        ("max_queue_items", 0),
        ("max_queue_tokens", 0),
        ("request_timeout_ms", 0),
        ("max_body_bytes", 0),
        ("limit_connections", 0),
        ("header_timeout", 0),
        ("body_timeout", 0),
        ("send_timeout", 0),
        ("heartbeat_timeout", 0),
        ("drain_delay", -0.1),
        ("hang_timeout", -1),
        ("drain_delay", float("inf")),
        ("shutdown_timeout", 0),
        ("log_level", "loud"),
    ],
)
def test_values_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(ValidationError) as caught:
        Settings(**{name: value})
    assert [error["loc"][0] for error in caught.value.errors()] == [name]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_delay_is_a_finite_number(value):
    with pytest.raises(ValidationError):
        Settings(max_delay_ms=value)


def test_every_setting_says_what_it_does():
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_settings_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().port = 1


def test_torchscript_files_are_opened_only_where_that_is_allowed():
    with pytest.raises(ValidationError, match="--allow-torchscript"):
        Settings(backend="torchscript")
    assert Settings(backend="torchscript", allow_torchscript=True).backend == "torchscript"


@pytest.mark.parametrize("workers", [0, -1, 257])
def test_rubbish_workers_are_refused(workers):
    with pytest.raises(ValidationError):
        Settings(workers=workers)
