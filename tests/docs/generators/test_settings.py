import pytest

from docs.generators import settings
from service.settings import Settings


def test_every_setting_is_on_the_page():
    page = settings.settings_page()
    for name in Settings.model_fields:
        assert f"| `--{name.replace('_', '-')}`<br>`SOFTSERVE_{name.upper()}` | " in page
    assert "integer, 0 to 65,535<br>`8000` | Port to listen on. |" in page


def test_a_group_that_begins_with_no_setting_is_an_error(monkeypatch):
    monkeypatch.setitem(settings.GROUPS, "gone", "Gone")
    with pytest.raises(KeyError, match="gone"):
        settings.settings_page()
