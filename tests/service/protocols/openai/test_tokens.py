"""Tokenizer endpoints."""


def post(client, path, **fields):
    return client.post(path, json=fields)


def test_ids_and_back(client):
    found = post(
        client, "/tokenize", prompt="We had </s> a xyzzyx", add_special_tokens=False, return_token_strs=True
    ).json()
    assert found["count"] == len(found["tokens"]) == 5
    assert found["token_strs"] == ["we", "had", "</s>", "a", "<unk>"]
    assert found["max_model_len"] == 1000
    assert post(client, "/detokenize", tokens=found["tokens"]).json() == {"prompt": "we had </s> a <unk>"}
    assert post(client, "/tokenize", prompt="").json()["tokens"] == []


def test_what_is_refused(client):
    for path, fields, words in (
        ("/tokenize", {"prompt": 1}, "prompt"),
        ("/tokenize", {"prompt": "a" * 100_000}, "characters"),
        ("/tokenize", {"prompt": "a", "model": "intents"}, "unknown model"),
        ("/detokenize", {"tokens": ["a"]}, "token ids"),
        ("/detokenize", {"tokens": [-1]}, "token ids"),
    ):
        answer = post(client, path, **fields)
        assert answer.status_code in (400, 404), answer.text
        assert words in answer.json()["error"]["message"]
    assert client.get("/tokenizer_info?model=intents").status_code == 404


def test_the_tokenizer_is_described(client):
    found = client.get("/tokenizer_info").json()
    assert (found["eos_token"], found["bos_token"], found["unk_token"]) == ("</s>", None, "<unk>")
