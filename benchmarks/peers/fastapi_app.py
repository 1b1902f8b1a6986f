"""A FastAPI application without batching: each request computes its text in the thread pool of `def` handlers.

https://fastapi.tiangolo.com/async/ and https://fastapi.tiangolo.com/deployment/server-workers/
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.peers.classifier import Answer, Classifier, Settings


class Query(BaseModel):
    text: str | list[str]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings = Settings.from_environment()
    app.state.classifier = Classifier.warm(settings.bundle, settings.threads, settings.device)
    yield


app = FastAPI(lifespan=_lifespan)


@app.post("/classify")
def classify(query: Query) -> Answer | list[Answer]:
    classifier: Classifier = app.state.classifier
    if isinstance(query.text, str):
        return classifier.classify([query.text])[0]
    return classifier.classify(query.text)


if __name__ == "__main__":
    settings = Settings.from_environment()
    uvicorn.run(
        "benchmarks.peers.fastapi_app:app",
        port=settings.port,
        workers=settings.processes,
        log_level="warning",
        access_log=False,
    )
