"""The MCP server: tools over streamable HTTP, without sessions."""

import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp.types import Tool as ListedTool
from pydantic import ValidationError

from models.operations.validation import errors_of, named_sentence
from service.engine.served_models import ServedModels
from service.http.errors import Failing, failure_of
from service.protocols.mcp.tools import TOOLS
from service.settings import Settings

__all__ = ["allowed_origins", "session_manager"]

logger = logging.getLogger("softserve")

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def session_manager(app: FastAPI, settings: Settings) -> StreamableHTTPSessionManager:
    """Return what answers requests while its `run` is entered. It can be entered once."""
    server: Server[Any] = Server("softserve", version=app.version, on_list_tools=_list, on_call_tool=_call)
    hosts = [*_LOOPBACK, *(name.strip() for name in settings.mcp_hosts.split(",") if name.strip())]
    security = TransportSecuritySettings(
        allowed_hosts=[*hosts, *(f"{host}:*" for host in hosts)], allowed_origins=allowed_origins(hosts, settings)
    )
    return StreamableHTTPSessionManager(
        server,
        json_response=True,
        stateless=True,
        security_settings=security,
        max_request_body_size=settings.max_body_bytes,
    )


def allowed_origins(hosts: list[str], settings: Settings) -> list[str]:
    """Return the origins of pages that may call: those of the hosts themselves, and those of `cors_origins`."""
    own = [f"{scheme}://{host}{port}" for scheme in ("http", "https") for host in hosts for port in ("", ":*")]
    return [*own, *(origin.strip() for origin in settings.cors_origins.split(",") if origin.strip())]


async def _list(context: Any, params: Any) -> ListToolsResult:
    del params
    served_models: ServedModels = context.request.app.state.served_models
    offered = {
        name for each in served_models.served.values() if each.model.reads == "text" for name in each.model.offers
    }
    only_reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return ListToolsResult(
        tools=[
            ListedTool(
                name=name,
                description=tool.description,
                input_schema=tool.arguments.model_json_schema(),
                annotations=only_reads,
            )
            for name, tool in TOOLS.items()
            if tool.operation in offered
        ]
    )


async def _call(context: Any, params: CallToolRequestParams) -> CallToolResult:
    """Answer a call; errors are in the result, where the calling model reads them."""
    request: Request = context.request
    tool = TOOLS.get(params.name)
    if tool is None:
        return _failed(f"unknown tool {params.name[:80]!r}; known tools: {', '.join(TOOLS)}")
    try:
        arguments = tool.arguments.model_validate(params.arguments or {})
        content = await tool.run(request, arguments)
    except ValidationError as error:
        first = errors_of(error)[0]
        return _failed(named_sentence(first, first["loc"]))
    except Exception as error:
        failure = failure_of(Failing.of(request.scope), error)
        if failure is None:
            logger.exception("an error in the tool %s", params.name)
            return _failed("an error in the service; its log has the details")
        return _failed(failure.detail)
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=content)


def _failed(detail: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=detail)], is_error=True)
