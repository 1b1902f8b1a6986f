"""PO files of gettext: messages without a translation, plural forms included."""

import logging
from collections.abc import Sequence
from typing import Any

from models.documents.document import DocumentError, DocumentOptions, Segment, message_markup, missing_package

__all__ = ["read_po"]

_DEFAULT_PLURAL = (2, "(n != 1)")


def read_po(content: bytes, options: DocumentOptions) -> "PoDocument":
    """Read a PO file; raises `DocumentError`."""
    try:
        from translate.storage.base import ParseError
        from translate.storage.pypo import pofile
    except ModuleNotFoundError:
        raise missing_package("translate-toolkit", "po") from None
    logging.getLogger("translate").setLevel(logging.ERROR)
    read: Any = pofile.parsestring
    try:
        store = read(content)
    except (ParseError, ValueError, LookupError, IndexError, AttributeError) as error:
        raise DocumentError(f"po: {str(error)[:200] or 'the file cannot be read'}") from None
    if content.strip() and not store.units:
        raise DocumentError("po: the file has no messages")
    return PoDocument(content, options)


class PoDocument:
    """A PO file that was read."""

    def __init__(self, content: bytes, options: DocumentOptions) -> None:
        self._content, self._options = content, options
        segments: list[Segment] = []
        for unit in self._units(self._store()):
            context = unit.getcontext() or " ".join(unit.getlocations())
            segments += [Segment(str(text), message_markup(str(text)), context) for text in _sources(unit)]
            if len(segments) > options.limits.max_segments:
                raise DocumentError(f"the document has more than {options.limits.max_segments} texts")
        self.segments = tuple(segments)

    def written(self, translations: Sequence[str | None]) -> bytes:
        """Return the file; the plural's translation is that of all forms but the first one."""
        store = self._store()
        units = self._units(store)
        if not any(each is not None for each in translations):
            return self._content
        forms = self._plural_forms(store) if any(unit.hasplural() for unit in units) else 1
        left = iter(translations)
        for unit in units:
            found = [next(left) for _ in _sources(unit)]
            if any(each is None for each in found):
                continue
            singular, *plural = found
            unit.target = [singular, *plural * (forms - 1)] if plural and forms > 1 else found[-1]
            if unit.isfuzzy():
                unit.markfuzzy(False)
                unit.prev_source = ""
        written: bytes = bytes(store)
        return written

    def _store(self) -> Any:
        from translate.storage.pypo import pofile

        read: Any = pofile.parsestring
        return read(self._content)

    def _units(self, store: Any) -> list[Any]:
        """Return the messages that are translated."""
        return [
            unit
            for unit in store.units
            if not unit.isheader()
            and not unit.isobsolete()
            and any(text.strip() for text in _sources(unit))
            and (self._options.overwrite or not _has_translation(unit))
        ]

    def _plural_forms(self, store: Any) -> int:
        """Return the number of plural forms, which is added to the header where that does not say it."""
        from translate.lang.data import languages

        count, _ = store.getheaderplural()
        if count is not None and str(count).isdecimal() and 1 <= int(count) <= 8:
            return int(count)
        code = (self._options.target_language or "").replace("-", "_")
        known = languages.get(code) or languages.get(code.partition("_")[0])
        forms, equation = known[1:3] if known and known[1] else _DEFAULT_PLURAL
        store.updateheaderplural(forms, equation)
        return int(forms)


def _sources(unit: Any) -> list[str]:
    return [str(each) for each in unit.source.strings] if unit.hasplural() else [str(unit.source)]


def _has_translation(unit: Any) -> bool:
    texts = getattr(unit.target, "strings", [unit.target])
    return any(str(each or "").strip() for each in texts)
