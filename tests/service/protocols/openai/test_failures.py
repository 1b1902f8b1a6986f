"""Errors in OpenAI's form."""

import json

import pytest

from service.http.errors import Failure
from service.protocols.openai.failures import failure_response


@pytest.mark.parametrize(
    ("status", "sent", "kind", "code"),
    [
        (401, 401, "authentication_error", "invalid_api_key"),
        (404, 404, "not_found_error", "model_not_found"),
        (422, 400, "invalid_request_error", None),
        (429, 429, "rate_limit_error", "rate_limit_exceeded"),
        (500, 500, "server_error", None),
        (504, 504, "server_error", "timeout"),
    ],
)
def test_statuses_types_and_codes(status, sent, kind, code):
    answer = failure_response(Failure(status, "why", {"Retry-After": "3"}))
    assert answer.status_code == sent
    assert json.loads(answer.body) == {"error": {"message": "why", "type": kind, "param": None, "code": code}}
    assert answer.headers["retry-after"] == "3"
    assert answer.headers.get("x-should-retry") == ("false" if status == 504 else None)
