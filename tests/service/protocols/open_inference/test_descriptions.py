"""Open Inference's descriptions of the server and its models."""

from service.protocols.open_inference import descriptions
from service.protocols.open_inference.served import find_model


def test_the_server_and_its_models(client):
    app = client.app
    assert descriptions.server(app)["name"] == "softserve"
    models = descriptions.served_models(app)
    assert [each["name"] for each in descriptions.index(app)] == [each.name for each in models]
    model = find_model(app, "next-word")
    found = descriptions.metadata(app, model)
    assert found["versions"] == [model.version]
    assert [each["name"] for each in found["inputs"]] == ["text"]
    assert {each["data_type"] for each in descriptions.config(model)["output"]} == {"TYPE_STRING", "TYPE_FP32"}
    (stats,) = descriptions.model_statistics(app, [find_model(app, "next-word.tokens")])["model_stats"]
    assert stats["name"] == "next-word.tokens"
