import inspect

import pytest

from models import errors
from models.errors import BundleError, ModelError, QueryError, TextTooLongError, UnknownModelError, UnsuitableModelError


def test_bundle_error_lists_its_problems():
    error = BundleError("models/x/1", (problem for problem in ["a is missing", "b is broken"]))
    assert error.problems == ("a is missing", "b is broken")
    assert str(error) == "models/x/1: a is missing; b is broken"


@pytest.mark.parametrize(("known", "text"), [(["a:1", "b:2"], "a:1, b:2"), ([], "none")])
def test_unknown_model_names_the_known_ones(known, text):
    error = UnknownModelError("x", iter(known))
    assert error.known == tuple(known)
    assert str(error) == f"unknown model 'x'; known models: {text}"


def test_an_unsuitable_model_names_the_suitable_ones():
    error = UnsuitableModelError("translate", ["de-en:2"], "intents", ("classify",))
    assert str(error) == "the model 'intents' is for classify, not for translate; models for translate: de-en:2"
    error = UnsuitableModelError("score", [], "intents", ("classify",), "text-classification")
    assert str(error).startswith("the model 'intents' (text-classification) is for classify, not for score")
    assert error.offers == ("classify",)
    assert "several models for score, name one: a:1, b:1" in str(UnsuitableModelError("score", ["a:1", "b:1"]))
    assert str(UnsuitableModelError("score", [])) == "there is no model for score"


def test_too_long_a_text_names_length_limit_and_unit():
    error = TextTooLongError(1001, 1000)
    assert (error.length, error.limit, error.unit) == (1001, 1000, "tokens")
    assert str(error) == "the text has 1001 tokens; the model's limit is 1000"
    assert str(TextTooLongError(7, 5, "characters")) == "the text has 7 characters; the model's limit is 5"


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_a_model_error(name):
    assert issubclass(getattr(errors, name), ModelError)


def test_every_error_of_the_module_is_public():
    defined = {name for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)}
    assert defined == set(errors.__all__)


@pytest.mark.parametrize(
    ("kind", "builtin"), [(BundleError, ValueError), (QueryError, ValueError), (UnknownModelError, LookupError)]
)
def test_errors_are_also_the_builtin_kind_one_would_catch(kind, builtin):
    assert issubclass(kind, builtin)


def test_too_long_a_text_is_the_fault_of_the_query():
    assert issubclass(TextTooLongError, QueryError)
