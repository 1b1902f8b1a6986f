"""A comparison table of two rows on the toy corpus, trained within a moment."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.training.test_cli import RECIPE
from training.data.corpus import Corpus
from training.results.tables import Row, Table


@pytest.fixture
def table(tiny_corpus: Corpus, tmp_path: Path) -> Iterator[Table]:
    """The only table, `toy`: `lin` and `pow`, of which the paper has numbers, with two seeds."""
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    made = Table(
        name="toy",
        title="Kernels on a toy",
        description="Two kernels.",
        budget="2 epochs.",
        recipe=str(file),
        overrides=("data.limit=40", "network.hidden_size=8"),
        rows={
            "lin": Row(paper=46.8),
            "pow": Row(overrides=("output_layer.kernels=pow",), paper=46.9),
        },
        seeds=(1, 2),
        metric="perplexity",
        maximize=False,
        paper="perplexity on more text",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.results.tables.TABLES", {"toy": made})
        for module in ("command", "page"):
            patch.setattr(f"training.results.{module}.TABLES", {"toy": made})
        yield made
