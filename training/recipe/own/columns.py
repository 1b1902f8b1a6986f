"""Which column of a user's file is the label, the text, the source or the target."""

from collections.abc import Mapping, Sequence

from training.data.inspection import Inspected

__all__ = ["label_and_path", "label_and_text", "possible_labels", "source_and_target", "text_column"]

_TEXT_NAMES = (
    "text",
    "texts",
    "utterance",
    "body",
    "message",
    "sentence",
    "content",
    "review",
    "comment",
    "description",
)
_LABEL_NAMES = ("label", "labels", "class", "intent", "category", "kategorie", "topic", "topics", "tag", "tags", "kind")
_PATH_NAMES = ("path", "file", "filename", "file_name", "image", "img", "photo")
_SOURCE_NAMES, _TARGET_NAMES = ("source", "src", "input"), ("target", "tgt", "output")
_MOST_CLASSES = 0.5
"""Distinct labels as a fraction of the rows, at most."""


def label_and_text(found: Inspected, given: Mapping[str, str]) -> tuple[str, str]:
    """Return the names of the columns of labels and of texts; `given` are those that the user names.

    Raises `ValueError` for a given name that there is not, and where no column has labels.
    """
    _check(found, given, ("label", "text"))
    others = {name: values for name, values in found.texts.items() if name not in given.values()}
    label = given.get("label") or _named(others, _LABEL_NAMES)
    text = given.get("text") or _longest({name: each for name, each in others.items() if name != label}, _TEXT_NAMES)
    if label is None:
        label = next(iter(possible_labels(found, text)), None)
    if label is None or text is None:
        raise ValueError(
            f"{found.path}: which column has the labels? There are {', '.join(found.texts)}, and none repeats as "
            "labels do; say it by --columns label=NAME --columns text=NAME"
        )
    return label, text


def label_and_path(found: Inspected, given: Mapping[str, str]) -> tuple[str, str]:
    """Return the names of the columns of labels and of paths of images; raises as `label_and_text` does."""
    _check(found, given, ("label", "path"))
    others = {name: values for name, values in found.texts.items() if name not in given.values()}
    path = (
        given.get("path")
        or _named(others, _PATH_NAMES)
        or next(filter(lambda name: _is_path(others[name]), others), None)
    )
    label = given.get("label") or _named(others, _LABEL_NAMES) or next(iter(possible_labels(found, path)), None)
    if label is None or path is None:
        raise ValueError(
            f"{found.path}: which column has the labels, and which the paths of images? There are "
            f"{', '.join(found.texts)}; say it by --columns label=NAME --columns path=NAME"
        )
    return label, path


def _is_path(values: Sequence[str]) -> bool:
    return all(value.lower().endswith((".png", ".jpg", ".jpeg")) for value in values[:100])


def possible_labels(found: Inspected, text: str | None) -> list[str]:
    """Return the columns whose values repeat as labels do, the one with the fewest different values first."""
    shares = {
        name: len(set(values)) / max(1, len(values))
        for name, values in found.texts.items()
        if name != text and len(set(values)) > 1
    }
    return sorted((name for name, share in shares.items() if share <= _MOST_CLASSES), key=shares.__getitem__)


def source_and_target(found: Inspected, given: Mapping[str, str]) -> tuple[str, str]:
    """Return the names of the columns of sources and of targets; raises as `label_and_text` does."""
    _check(found, given, ("source", "target"))
    others = {name: values for name, values in found.texts.items() if name not in given.values()}
    source = given.get("source") or _named(others, _SOURCE_NAMES)
    target = given.get("target") or _named(others, _TARGET_NAMES)
    rest = sorted((name for name in others if name not in (source, target)), key=lambda name: -_words(others[name]))[
        : 2 - (source is not None) - (target is not None)
    ]
    ordered = [name for name in found.texts if name in rest]  # the first column is the source
    chosen = [source or (ordered.pop(0) if ordered else None), target or (ordered.pop(0) if ordered else None)]
    if None in chosen:
        raise ValueError(f"{found.path}: pairs have two columns, source and target; there is {', '.join(found.texts)}")
    return str(chosen[0]), str(chosen[1])


def text_column(found: Inspected, given: Mapping[str, str]) -> str:
    """Return the name of the column of texts; raises `ValueError` for a given name that there is not."""
    _check(found, given, ("text",))
    return given.get("text") or _longest(found.texts, _TEXT_NAMES) or next(iter(found.texts))


def _check(found: Inspected, given: Mapping[str, str], known: Sequence[str]) -> None:
    for role, name in given.items():
        if role not in known:
            raise ValueError(f"--columns {role}={name}: there is no {role!r} here, but {' and '.join(known)}")
        if name not in found.texts:
            raise ValueError(f"--columns {role}={name}: {found.path} has no such column, but {', '.join(found.texts)}")


def _named(columns: Mapping[str, Sequence[str]], names: Sequence[str]) -> str | None:
    own = {name.casefold(): name for name in columns}
    return next((own[name] for name in names if name in own), None)


def _longest(columns: Mapping[str, Sequence[str]], names: Sequence[str]) -> str | None:
    return _named(columns, names) or max(columns, key=lambda name: _words(columns[name]), default=None)


def _words(texts: Sequence[str]) -> float:
    return sum(len(text.split()) for text in texts) / max(1, len(texts))
