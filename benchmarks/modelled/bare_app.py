"""A Starlette application that parses requests and answers them, and does nothing else.

Its answers have the labels and numbers of those of the service.
"""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

_LABELS = [
    {"label": f"restaurant_reservation_{number}", "probability": 2.0**-number, "log_probability": -0.6931 * number}
    for number in range(1, 6)
]


async def _classify(request: Request) -> JSONResponse:
    body = await request.json()
    texts = [body["text"]] if isinstance(body["text"], str) else body["text"]
    return JSONResponse({"model": "intents", "version": 2, "results": [{"labels": _LABELS} for _ in texts]})


app = Starlette(routes=[Route("/v1/classify", _classify, methods=["POST"])])


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
