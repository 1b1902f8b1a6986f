"""A FastAPI application of sentence-transformers, one text or several a request, in the thread pool of `def` handlers.

python -m benchmarks.peers.sentence_transformers_app DIRECTORY PORT
"""

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

__all__ = ["app"]


class Query(BaseModel):
    inputs: str | list[str]


app = FastAPI()


@app.get("/readyz")
def ready() -> None:
    return None


@app.post("/embed")
def embed(query: Query) -> list[list[float]]:
    texts = [query.inputs] if isinstance(query.inputs, str) else query.inputs
    vectors: list[list[float]] = app.state.model.encode(texts, show_progress_bar=False).tolist()
    return vectors


if __name__ == "__main__":
    app.state.model = SentenceTransformer(sys.argv[1], device="cpu")
    app.state.model.encode(["warm up"], show_progress_bar=False)
    uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
