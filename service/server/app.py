"""The ASGI application."""

import asyncio
import contextlib
import logging
import math
import re
from collections.abc import AsyncIterator
from importlib.metadata import PackageNotFoundError, version

from fastapi import Depends, FastAPI
from fastapi.middleware.cors import CORSMiddleware

from service.engine.administration import OneProcess
from service.engine.client import Engine
from service.engine.resources import Resources
from service.engine.served_models import ServedModels
from service.engine.shared_counters import Counters
from service.engine.watching import DirectoryWatcher
from service.http import admin, experiments, health, models
from service.http.access_log import AccessLog
from service.http.auth import AuthMiddleware, Guard, administrators_only
from service.http.database import database_of
from service.http.documents import UPLOAD_PATHS, jobs_of, upload_limit
from service.http.endpoint import ENDPOINTS
from service.http.errors import ERROR_FORMS, Problem, install_error_handlers
from service.http.glossaries import glossaries_of
from service.http.head import HeadMiddleware
from service.http.key_files import KeyFiles
from service.http.middleware import RequestMiddleware
from service.http.redirects import RelativeRedirects
from service.http.route import SHOWN_KEY, RouterBypass, check_dependencies
from service.http.usage import Usage
from service.http.v1 import documents, glossaries, languages
from service.observability.exposition import Exposition
from service.observability.loop_lag import measure_loop_lag
from service.observability.metrics import Metrics
from service.protocols.protocol import error_forms, load_protocols
from service.settings import NATIVE, Settings, protocol_names
from service.web.pages import OPEN_PATHS, web_router

__all__ = ["create_app"]

logger = logging.getLogger("softserve")


def create_app(
    settings: Settings | None = None, *, load_first: bool = False, counters: Counters | None = None
) -> FastAPI:
    """Create the service as an ASGI application, e.g. for `uvicorn --factory service.server.app:create_app`.

    Models load in the background once the application starts; `/readyz` reports when they are loaded. With `load_first`
    they load before the application has started, so that a server accepts no connection until then. `counters` are
    those of the API keys, which several processes may share. Raises at once where a model directory is missing or lacks
    a model that the settings name, or where a key file has no key.
    """
    settings = settings or Settings()
    metrics = Metrics()
    resources = Resources(settings)
    served_models = ServedModels(settings, metrics, resources)
    app = FastAPI(
        title="Softserve",
        summary="Models whose output layer is not a plain softmax: next words, scores, translations, texts, classes",
        version=_version(),
        docs_url=None,  # of this project, for FastAPI's load their scripts from another server
        redoc_url=None,
        lifespan=_lifespan,
        responses={500: {"model": Problem}},
        telemetry={"tracing": settings.tracing, "auto_configure": settings.tracing, "metrics": False, "logs": False},
    )
    app.state.settings, app.state.metrics, app.state.served_models = settings, metrics, served_models
    app.state.resources = resources
    app.state.engine = Engine(settings, metrics, served_models, resources, counters)
    app.state.administration = OneProcess(app.state.engine)
    app.state.key_files = keys = KeyFiles(settings.api_keys, settings.admin_keys)
    keys.apply(app.state.engine.tenants)
    app.state.database = database_of(settings)
    app.state.jobs = jobs_of(settings, app.state.engine, app.state.database)
    app.state.glossaries = glossaries_of(settings, app.state.database)
    app.state.usage = Usage(app.state.database, app.state.engine.tenants)
    app.state.heap_trimmer = served_models.heap_trimmer
    app.state.exposition = Exposition(metrics.text)
    app.state.load_first = load_first
    app.state.shutdown_deadline = math.inf  # on the clock of time.monotonic; the server sets it
    names = protocol_names(settings.protocols)
    protocols = load_protocols(names)
    setattr(app.state, ERROR_FORMS, error_forms(protocols))
    app.state.protocols = protocols
    routers = [*ENDPOINTS.values(), models.router, languages.router] if NATIVE in names else []
    if app.state.database is not None and NATIVE in names:
        routers += [documents.router, glossaries.router]
    app.add_middleware(HeadMiddleware)
    app.add_middleware(RelativeRedirects)
    if not settings.tracing:  # FastAPI's spans learn their route from its router
        app.add_middleware(RouterBypass, routes=[route for router in routers for route in router.routes])
    app.state.guard = Guard(
        users=keys.users,
        administrators=keys.administrators,
        key_in_body=[path for each in protocols if each.key_in_body for path in each.prefixes],
        open_paths=[OPEN_PATHS, *(re.compile(path) for each in protocols for path in each.open_paths)],
    )
    app.add_middleware(AuthMiddleware, guard=app.state.guard)
    app.add_middleware(
        RequestMiddleware,
        metrics=metrics,
        max_body_bytes=settings.max_body_bytes,
        body_timeout=settings.body_timeout,
        access_log=AccessLog() if settings.access_log else None,
        body_limits=None if app.state.jobs is None else dict.fromkeys(UPLOAD_PATHS, upload_limit(settings)),
    )
    if settings.cors_origins:
        origins = [origin.strip() for origin in settings.cors_origins.split(",")]
        app.add_middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
    install_error_handlers(app)
    for router in routers:
        app.include_router(router, dependencies=[SHOWN_KEY] if settings.api_keys else [])
    check_dependencies(app.routes)
    if settings.admin_keys:
        for router in (admin.router, experiments.router):
            app.include_router(router, dependencies=[SHOWN_KEY, Depends(administrators_only)])
    for protocol in protocols:
        app.include_router(protocol.router)
    app.include_router(health.router)
    app.include_router(web_router(playground=NATIVE in names))
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    served_models: ServedModels = app.state.served_models
    settings: Settings = app.state.settings
    app.openapi()  # kept: made at its first request, it would block the event loop for 0.1 s
    measuring = asyncio.create_task(measure_loop_lag(app.state.metrics.loop_lag))
    watching = asyncio.create_task(app.state.key_files.watch(app.state.guard, app.state.engine.tenants))
    try:
        if app.state.load_first:
            await served_models.load()
        running = asyncio.create_task(_run(served_models, settings.watch_seconds, load=not app.state.load_first))
        running.add_done_callback(_log_failure)
        try:
            async with contextlib.AsyncExitStack() as servers:
                await servers.enter_async_context(app.state.administration.run())
                await servers.enter_async_context(app.state.usage.run())
                if app.state.jobs is not None:
                    await servers.enter_async_context(app.state.jobs.run())
                for protocol in app.state.protocols:
                    await servers.enter_async_context(protocol.run(app))
                yield
        finally:
            running.cancel()
            await asyncio.wait([running])
            await app.state.engine.experiments.stop()
            await served_models.stop()
    finally:
        measuring.cancel()
        watching.cancel()
        if app.state.database is not None:
            app.state.database.close()
        app.state.exposition.close()
        app.state.resources.close()


async def _run(served_models: ServedModels, watch_seconds: float, *, load: bool) -> None:
    if load:
        await served_models.load()
    if watch_seconds:
        await DirectoryWatcher(served_models, served_models.loader).run(watch_seconds)


def _log_failure(running: "asyncio.Task[None]") -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.error("a model failed to load: %s", error)


def _version() -> str:
    try:
        return version("softserve")
    except PackageNotFoundError:
        return "unknown"
