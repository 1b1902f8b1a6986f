"""The data report as one HTML page without other files: tables, and bar charts of classes and lengths as SVG."""

from collections.abc import Iterable, Sequence
from html import escape

from training.data.report import DataReport

__all__ = ["report_page"]

_MOST_CLASSES = 40
_LONGEST_NAME = 40
"""Characters of a name in a chart."""
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}"
    "svg{max-width:100%;height:auto}"
    "svg text{font:12px system-ui,sans-serif;fill:currentColor}svg rect{fill:#4c78a8}.warning{font-weight:bold}"
)


def report_page(report: DataReport) -> str:
    """Return the page."""
    title = escape(f"Data report: {report.name}")
    parts = [f"<h1>{title}</h1>", _table(("split", report.noun), ((k, f"{v:,}") for k, v in report.splits.items()))]
    parts.append("<h2>Findings</h2>")
    if report.findings:
        rows = ((each.level, each.message, f"{each.count:,}", "; ".join(each.examples)) for each in report.findings)
        parts.append(_table(("level", "what", "number", "examples"), rows))
    else:
        parts.append("<p>Nothing suspicious was found.</p>")
    for column, bars in report.histograms.items():
        language = f", likely language {report.languages[column]}" if report.languages.get(column) else ""
        parts.append(f"<h2>Words of {escape(column)}{escape(language)}</h2>")
        names = [*(f"up to {words:,}" for words, _ in bars[:-1]), f"more than {bars[-2][0]:,}"]
        parts.append(_bars(list(zip(names, (count for _, count in bars), strict=True))))
    if report.classes:
        parts.append(f"<h2>{len(report.classes):,} classes</h2>")
        parts.append(_bars(list(report.classes.items())[:_MOST_CLASSES]))
        if len(report.classes) > _MOST_CLASSES:
            parts.append(f"<p>The {_MOST_CLASSES} most frequent ones are shown.</p>")
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        f'<tr class="{escape(row[0])}">{"".join(f"<td>{escape(cell)}</td>" for cell in row)}</tr>' for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _bars(values: Sequence[tuple[str, int]]) -> str:
    """Return a chart of horizontal bars, one for each name and number."""
    most = max((count for _, count in values), default=0) or 1
    names = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name, _ in values]
    left = 8 * max(map(len, names), default=0) + 10
    rows = [
        f'<text x="{left - 5}" y="{18 * place + 13}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="{left}" y="{18 * place + 2}" width="{400 * count / most:.1f}" height="14"/>'
        f'<text x="{left + 5 + 400 * count / most:.1f}" y="{18 * place + 13}">{count:,}</text>'
        for place, (name, (_, count)) in enumerate(zip(names, values, strict=True))
    ]
    width, height = left + 480, 18 * len(values)
    return f'<svg role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}">{"".join(rows)}</svg>'
