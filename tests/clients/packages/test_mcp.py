"""The package `mcp` over streamable HTTP."""

import asyncio

import httpx2
import mcp
import pytest
from mcp.client.streamable_http import streamable_http_client


def session(address, work, **headers):
    """Return what `work` returns, a function of a session."""

    async def run():
        async with (
            httpx2.AsyncClient(headers=headers) as client,
            streamable_http_client(f"{address}/mcp", http_client=client) as streams,
            mcp.ClientSession(*streams) as found,
        ):
            await found.initialize()
            return await work(found)

    return asyncio.run(run())


def called(address, name, **arguments):
    return session(address, lambda each: each.call_tool(name, arguments))


def test_tools_are_listed(address):
    found = session(address, lambda each: each.list_tools())
    names = {each.name for each in found.tools}
    assert names == {"translate-text", "get-source-languages", "get-target-languages", "classify", "score", "next-word"}
    assert all(each.annotations.read_only_hint for each in found.tools)


def test_tools_answer(address, post):
    assert called(address, "get-target-languages").structured_content == {"languages": ["en"]}
    found = called(address, "classify", text="play some music", top_k=1)
    expected = post("/v1/classify", text="play some music", top_k=1)["results"][0]
    assert found.structured_content["labels"][0]["label"] == expected["labels"][0]["label"]
    expected = post("/v1/translate", text="Guten Morgen!")["results"][0]["translations"][0]["text"]
    found = called(address, "translate-text", text="Guten Morgen!", target_language="en")
    assert found.structured_content["translations"][0]["text"] == expected


def test_what_is_wrong_is_a_result(address):
    found = called(address, "classify", text="a", model="nope")
    assert found.is_error
    assert "unknown model 'nope'" in found.content[0].text


def test_keys(closed, key):
    with pytest.raises(BaseExceptionGroup):
        session(closed.address, lambda each: each.list_tools())
    assert session(closed.address, lambda each: each.list_tools(), Authorization=f"Bearer {key}").tools
