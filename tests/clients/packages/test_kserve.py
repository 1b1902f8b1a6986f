"""KServe's inference clients, over HTTP and gRPC."""

import asyncio

import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

TEXTS = ["play some music", "what is the weather like"]


def request(*, binary=False, model="intents"):
    text = InferInput("text", [len(TEXTS)], "BYTES")
    text.set_data_from_numpy(np.array([each.encode() for each in TEXTS], object), binary_data=binary)
    outputs = [RequestedOutput(name, {"binary_data": binary}) for name in ("label", "probability")]
    return InferRequest(model, [text], request_id="7", request_outputs=outputs)


def over_http(address, work):
    async def run():
        client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
        try:
            return await work(client, f"{address}/")
        finally:
            await client.close()

    return asyncio.run(run())


def over_grpc(address, work):
    async def run():
        async with InferenceGRPCClient(address) as client:
            return await work(client)

    return asyncio.run(run())


@pytest.mark.parametrize("binary", [False, True])
def test_texts_over_http(address, binary):
    found = over_http(address, lambda client, url: client.infer(url, request(binary=binary), model_name="intents"))
    label, probability = found.outputs
    best = label.as_numpy()[0][0]
    assert (best.decode() if isinstance(best, bytes) else best) == "play_music"
    assert (probability.as_numpy()[:, 0] > 0.5).all()


def test_readiness_over_http(address):
    assert over_http(address, lambda client, url: client.is_server_live(url))
    assert over_http(address, lambda client, url: client.is_server_ready(url))
    assert over_http(address, lambda client, url: client.is_model_ready(url, "intents"))


def test_over_grpc(grpc_address):
    assert over_grpc(grpc_address, lambda client: client.is_server_live())
    assert over_grpc(grpc_address, lambda client: client.is_server_ready())
    assert over_grpc(grpc_address, lambda client: client.is_model_ready("intents"))
    found = over_grpc(grpc_address, lambda client: client.infer(request()))
    assert (found.outputs[1].as_numpy()[:, 0] > 0.5).all()
