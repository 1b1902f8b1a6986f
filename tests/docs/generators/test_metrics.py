from prometheus_client.parser import text_string_to_metric_families

from docs.generators.metrics import metrics_page
from service.metrics import Metrics


def test_every_metric_of_the_service_is_on_the_page():
    page = metrics_page()
    families = {each.name for each in text_string_to_metric_families(Metrics().text().decode())}
    own = {name for name in families if name.startswith("softserve_") and not name.endswith("_created")}
    assert len(own) > 20
    assert [name for name in own if f"| `{name}` |" not in page and f"| `{name}_total` |" not in page] == []
    labels = "`model`, `endpoint`, `status`, `deadline`"
    assert f"| `softserve_requests_total` | counter | {labels} | Requests that were answered; " in page
