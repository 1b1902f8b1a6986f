"""Write Grafana's dashboards: `python docker/grafana/dashboards.py`; with `--check`, fail where a file is out of date.

`dashboards/softserve.json` has the panels that `softserve.yaml` describes, `dashboards/softserve-runbook.json` the
runbook of docs/operations.md.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, text, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

ROOT = Path(__file__).parents[2]
DASHBOARDS = Path(__file__).parent / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
RUNBOOK = "softserve-runbook"
MODEL = 'model=~"$model", instance=~"$instance"'
PROBES = "/livez|/readyz|/metrics|.*/(health|live|ready|ServerLive|ServerReady|ModelReady)"
SELECTORS = {
    "<model>": MODEL,
    "<instance>": 'job="softserve", instance=~"$instance"',
    "<requests>": f'{MODEL}, endpoint!~"{PROBES}"',
}
IDLE = "no data"
MARKS = {
    "Models loaded": {"titleFormat": "Loaded", "textFormat": "{{model}}:{{version}} on {{instance}}", "step": "60s"},
    "Restarts": {"titleFormat": "Started", "textFormat": "{{instance}}", "step": "60s"},
}
"""Texts of annotations, which are options of the data source and have no builder."""


def expanded(expression: str) -> str:
    """Return an expression of softserve.yaml as Grafana reads it."""
    for name, selector in SELECTORS.items():
        expression = expression.replace(name, selector)
    return expression


def queries_of(panel: dict[str, Any]) -> dict[str, str]:
    """Return the PromQL expressions of a panel of softserve.yaml, by legend."""
    found: dict[str, str] = {}
    if histogram := panel.get("quantiles"):
        buckets = f"rate({histogram['of']}_bucket{{<model>}}[$__rate_interval])"
        for quantile in (0.5, 0.95, 0.99):
            legend = f"{{{{{histogram['by']}}}}} p{quantile * 100:.0f}"
            found[legend] = f"histogram_quantile({quantile}, sum by ({histogram['by']}, le) ({buckets}))"
    found |= panel.get("queries", {})
    return {legend: expanded(expression) for legend, expression in found.items()}


def thresholds(colors: dict[Any, str]) -> dashboard.ThresholdsConfig:
    """Return the color from each value on; `base` is below all of them."""
    return (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=None if at == "base" else at, color=color) for at, color in colors.items()])
    )


def query(expression: str, legend: str, number: int) -> prometheus.Dataquery:
    """Return a query of a panel."""
    asked = prometheus.Dataquery().expr(expression).legend_format(legend)
    return asked.datasource(SOURCE).ref_id(chr(ord("A") + number))


def stat_panel(each: dict[str, Any]) -> stat.Panel:
    """Return a panel with one number."""
    panel = stat.Panel().title(each["title"]).description(each["about"]).datasource(SOURCE).unit(each["unit"])
    panel.no_value(each["empty"]).thresholds(thresholds(each["colors"])).height(4).span(3)
    panel.color_mode(options.BigValueColorMode.BACKGROUND).graph_mode(options.BigValueGraphMode.NONE)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.with_target(query(each["query"], "", 0).instant())


def graph(each: dict[str, Any], width: int) -> timeseries.Panel:
    """Return a panel of time series; objectives and the limit are dashed lines."""
    panel = timeseries.Panel().title(each["title"]).description(each["about"]).datasource(SOURCE).unit(each["unit"])
    panel.min(0).no_value(IDLE).fill_opacity(0).show_points(options.VisibilityMode.NEVER).height(9).span(width)
    legend = common.VizLegendOptions().show_legend(True).calcs(["lastNotNull", "mean", "max"])
    panel.legend(legend.display_mode(options.LegendDisplayMode.TABLE).placement(options.LegendPlacement.BOTTOM))
    tooltip = common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI)
    panel.tooltip(tooltip.sort(options.SortOrder.DESCENDING))
    dashed = DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [10, 10]})
    panel.override_by_regexp("/^objective /", [dashed])
    if "limit" in each:
        panel.thresholds(thresholds({"base": "transparent", each["limit"]: "red"}))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED))
    for number, (name, expression) in enumerate(queries_of(each).items()):
        panel.with_target(query(expression, name, number))
    return panel


def alert_list() -> dashboard.Panel:
    """Return the list of alerts that fire or are about to."""
    shown = {"firing": True, "pending": True, "error": True, "noData": False, "normal": False}
    wanted = {"viewMode": "list", "groupMode": "default", "maxItems": 20, "sortOrder": 1, "alertName": "Softserve"}
    panel = dashboard.Panel().type("alertlist").title("Alerts").height(5).span(24)
    panel.description("Alerts that fire or are about to, with links to the runbook.")
    return panel.options({**wanted, "stateFilter": shown})


def variable(name: str, label: str, expression: str) -> dashboard.QueryVariable:
    """Return a variable whose values are those of a label."""
    every = VariableOption(text="All", value="$__all", selected=True)
    found = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query({"query": expression, "refId": name})
    found.multi(True).include_all(True).all_value(".*" if name == "device" else ".+").current(every)
    return found.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)


def annotation(name: str, color: str, expression: str) -> dashboard.AnnotationQuery:
    """Return marks at the times at which an expression has results."""
    return dashboard.AnnotationQuery().name(name).icon_color(color).enable(True).datasource(SOURCE).expr(expression)


def metrics() -> dashboard.Dashboard:
    """Return the dashboard of the service."""
    source = VariableOption(text="Prometheus", value="prometheus", selected=True)
    layout = yaml.safe_load((Path(__file__).parent / "softserve.yaml").read_text(encoding="utf-8"))
    built = _dashboard("softserve", "Softserve", "Health, latency, load, rejections by reason: docs/operations.md.")
    built.link(_link("Runbook", f"/d/{RUNBOOK}")).tooltip(DashboardCursorSync.CROSSHAIR)
    sources = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    built.with_variable(sources.current(source))
    built.with_variable(variable("instance", "Instance", 'label_values(up{job="softserve"}, instance)'))
    built.with_variable(variable("model", "Model", "label_values(softserve_model_info, model)"))
    built.with_variable(variable("device", "Device", "label_values(softserve_model_info, device)"))
    loaded = expanded("softserve_model_info{<model>} unless softserve_model_info offset 1m")
    restarted = expanded("changes(process_start_time_seconds{<instance>}[1m]) > 0")
    built.annotation(annotation("Models loaded", "green", loaded)).annotation(annotation("Restarts", "red", restarted))
    built.with_row(dashboard.Row("Health"))
    for each in layout["stats"]:
        built.with_panel(stat_panel(each))
    built.with_panel(alert_list())
    for title, panels in layout["rows"].items():
        built.with_row(dashboard.Row(title))
        columns = next(count for count in (3, 2) if len(panels) % count == 0)
        for panel in panels:
            built.with_panel(graph(panel, 24 // columns))
    return built


def runbook() -> dashboard.Dashboard:
    """Return the runbook of docs/operations.md as a dashboard, so that alerts have an address that works as shipped."""
    operations = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    chapter = operations.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    built = _dashboard(RUNBOOK, "Softserve: runbook", "What each alert means, and what to do: docs/operations.md.")
    built.link(_link("Dashboard", "/d/softserve"))
    for title, section in re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", chapter, re.MULTILINE | re.DOTALL):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", section.strip())  # links of the page lead nowhere here
        panel = text.Panel().title(title).mode("markdown").content(plain).height(7).span(12)
        built.with_panel(panel)
    return built


def _dashboard(uid: str, title: str, about: str) -> dashboard.Dashboard:
    built = dashboard.Dashboard(title).uid(uid).description(about).tags(["softserve"]).timezone("browser").readonly()
    return built.refresh("15s").time("now-1h", "now")


def _link(title: str, url: str) -> dashboard.DashboardLink:
    link = dashboard.DashboardLink(title).type(DashboardLinkType.LINK).url(url)
    return link.include_vars(True).keep_time(True)


def written() -> dict[Path, str]:
    """Return the text of each file."""
    built = {"softserve": _numbered(metrics().build()), RUNBOOK: _numbered(runbook().build())}
    documents = {name: json.loads(JSONEncoder(sort_keys=True).encode(each)) for name, each in built.items()}
    for each in documents["softserve"]["annotations"]["list"]:
        each |= MARKS[each["name"]]
    return {DASHBOARDS / f"{name}.json": json.dumps(each, indent=2) + "\n" for name, each in documents.items()}


def _numbered(built: Dashboard) -> Dashboard:
    """Give each panel the number by which links name it."""
    for number, panel in enumerate(built.panels or [], 1):
        panel.id_val = number
    return built


def main() -> None:
    """Write the files that are out of date, or fail where one is."""
    outdated = {path: content for path, content in written().items() if not _is(path, content)}
    if "--check" in sys.argv[1:] and outdated:
        names = ", ".join(path.name for path in outdated)
        sys.exit(f"out of date: {names}: run python docker/grafana/dashboards.py")
    for path, content in outdated.items():
        path.write_text(content, encoding="utf-8")


def _is(path: Path, content: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == content


if __name__ == "__main__":
    main()
