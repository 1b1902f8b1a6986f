"""`POST /v1/...`: the endpoint of each operation that the tasks list."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, create_model

from models import QueryError
from models.operations.operation import AnyOperation
from models.tasks.registry import listed_operations
from service.engine.caller import Caller
from service.engine.client import Job
from service.http.accounts import account_of
from service.http.answer import Answer, Results
from service.http.auth import tenant_of
from service.http.endpoint import register
from service.http.errors import PROBLEM_RESPONSES
from service.http.glossaries import MOST_GLOSSARIES, with_glossaries
from service.http.requests import Body, Deadline, ModelName, Priority, Texts, engine_of, examples, side_of, urgency_of
from service.http.route import ModelRoute

__all__ = ["OPERATIONS", "REQUESTS", "router"]

router = APIRouter(prefix="/v1", tags=["native"], route_class=ModelRoute)
register("operations")(router)

REQUESTS: dict[str, type[Body]] = {}
"""The model of the requests of each path."""

GlossaryIds = Annotated[
    str | Annotated[list[str], Field(min_length=1, max_length=MOST_GLOSSARIES)] | None,
    Field(
        description="The id of a stored glossary, or several, in place of `glossary`; of a term in several of them the "
        "translation of the first one is used."
    ),
]
_GLOSSARY_ID = "glossary_id"

OPERATIONS: dict[str, frozenset[str]] = {}
"""Names of the operations of each path."""


def _request_model(forms: Sequence[AnyOperation]) -> type[Body]:
    """Return the model of the requests to an operation, which has a form for each kind of input."""
    first, optional = forms[0], len(forms) > 1
    fields: dict[str, Any] = {}
    for form in forms:
        described = Field(None if optional else ..., description=form.describes_input)
        fields[form.input] = (Texts | None if optional else Texts, described)
    for form in forms:
        for name, field in form.params.model_fields.items():
            fields.setdefault(name, (field.annotation, field))
    fields["model"] = (ModelName, None)
    if "glossary" in fields:
        fields[_GLOSSARY_ID] = (GlossaryIds, None)

    class Examples(Body):
        model_config = examples(*(each for form in forms for each in form.examples))

    return create_model(
        f"{first.schema_name}Request", __base__=Examples, __module__=__name__, __doc__=first.about, **fields
    )


def _response_model(forms: Sequence[AnyOperation]) -> type[BaseModel]:
    types = dict.fromkeys(each for form in forms for each in form.records or (form.record,))
    results: Any = Results.__class_getitem__(reduce(or_, types))
    model: type[BaseModel] = create_model(
        f"{forms[0].schema_name}Response",
        __base__=results,
        __module__=__name__,
        __doc__=f"One result per {' or '.join(form.input for form in forms)}, in order.",
    )
    return model


def _params(form: AnyOperation, values: Mapping[str, Any], given: set[str]) -> Any:
    """Return the parameters among the values of a request, of which some are `given` and others have the defaults."""
    return form.params.model_construct(given, **{name: values[name] for name in form.params.model_fields})


def _add(forms: Sequence[AnyOperation]) -> None:
    """Add the endpoint of an operation."""
    first, model = forms[0], _request_model(forms)
    values = {name: field.get_default() for name, field in model.model_fields.items()}
    defaults = {form.input: _params(form, values, set()) for form in forms}
    has_glossaries = _GLOSSARY_ID in model.model_fields

    async def run(body: Any, request: Request, timeout_ms: Deadline = None, priority: Priority = None) -> Answer[bytes]:
        given = [form for form in forms if getattr(body, form.input) is not None]
        if len(given) != 1:
            raise QueryError(f"give either {' or '.join(form.input for form in forms)}")
        form = given[0]
        named = body.model_fields_set & form.params.model_fields.keys()
        params = _params(form, vars(body), named) if named else defaults[form.input]  # most requests name none
        if has_glossaries and (identifiers := getattr(body, _GLOSSARY_ID)) is not None:
            params = await with_glossaries(request, params, identifiers, model=body.model, operation=form.name)
        job = Job(
            operation=form,
            inputs=getattr(body, form.input),
            params=params,
            model=body.model,
            caller=Caller(
                account_of(request.scope), timeout_ms, urgency_of(priority), tenant_of(request), side_of(request)
            ),
        )
        found = await engine_of(request).run(job)
        return Answer(found.served, (form.json_of(each, params) for each in found.results), found.items)

    run.__name__, run.__doc__ = first.last_part.replace("-", "_"), first.summary
    run.__annotations__["body"] = model
    REQUESTS[f"/v1/{first.last_part}"] = model
    OPERATIONS[f"/v1/{first.last_part}"] = frozenset(form.name for form in forms)
    router.add_api_route(
        f"/{first.last_part}",
        run,
        methods=["POST"],
        response_model=_response_model(forms),
        response_model_exclude_none=first.omits_null,
        responses=PROBLEM_RESPONSES,
    )


def _forms() -> Iterable[list[AnyOperation]]:
    """Return the operations of each path, one for each kind of input, those on texts first."""
    found: dict[str, list[AnyOperation]] = {}
    for each in sorted(listed_operations(), key=lambda each: each.reads != "text"):
        found.setdefault(each.last_part, []).append(each)
    return found.values()


for forms in _forms():
    _add(forms)
