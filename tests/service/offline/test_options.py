"""Options that the commands share."""

from service.offline.options import FileOptions, ModelOptions
from service.settings import BUNDLED


def test_defaults_are_the_bundled_models_and_standard_streams():
    assert ModelOptions().model_dirs == (BUNDLED,)
    assert (FileOptions().output, FileOptions().format, FileOptions().resume) == (None, "auto", False)
