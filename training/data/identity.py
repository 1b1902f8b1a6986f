"""The identity of a run's data: number, hash and classes of the records of each split, to notice when they change."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Record", "SplitIdentity", "described_changes", "new_classes"]

Record = tuple[tuple[str, ...], str]
"""The classes of a record, none where the task has no classes, and its text, or a hash of its content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitIdentity:
    """What a run directory keeps of the records of a split, which are those after columns, limits and division."""

    records: int
    sha256: str
    """Hash of the records in their order."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """Records of each class."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> "SplitIdentity":
        """Return the identity of records, which are read once; raises the errors of reading them."""
        digest, count, classes = hashlib.sha256(), 0, Counter[str]()
        for record in records:
            digest.update(repr(record).encode(errors="surrogatepass"))
            classes.update(record[0])
            count += 1
        return cls(records=count, sha256=digest.hexdigest(), classes=dict(sorted(classes.items())))


def described_changes(
    before: Mapping[str, SplitIdentity], now: Mapping[str, SplitIdentity], names: Mapping[str, str]
) -> str:
    """Return what differs between the splits that both have, an empty text where nothing does.

    `names` are the files or corpora of the splits.
    """
    shared = [split for split in before if split in now]
    parts = [
        f"{split} ({names[split]}) {_counts(before[split].records, now[split].records)}"
        for split in shared
        if before[split].sha256 != now[split].sha256
    ]
    first, second = (_classes({split: each[split] for split in shared}) for each in (before, now))
    parts += [f"new class {label!r} ({count} records)" for label, count in second.items() if label not in first]
    parts += [
        f"class {label!r} has no record any more ({n} before)" for label, n in first.items() if label not in second
    ]
    return "; ".join(parts)


def new_classes(before: Mapping[str, SplitIdentity], now: Mapping[str, SplitIdentity]) -> list[str]:
    """Return the classes that some split has now and none had before."""
    return sorted(_classes(now).keys() - _classes(before).keys())


def _counts(before: int, now: int) -> str:
    if before == now:
        return f"has {now} records as before, but other ones or in another order"
    return f"had {before} records and has {now}, {abs(now - before)} {'more' if now > before else 'fewer'}"


def _classes(splits: Mapping[str, SplitIdentity]) -> Counter[str]:
    total = Counter[str]()
    for split in splits.values():
        total.update(split.classes)
    return total
