"""Documents whose texts are replaced where they stand, so that every other character stays as it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.documents.decoding import DecodedText
from models.documents.document import DocumentError, Limits, Segment
from models.text.words import Span

__all__ = ["Place", "SplicedDocument"]


def _as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Place:
    """Where a segment stands, and how a translation is written there."""

    span: Span
    write: Callable[[str], str] = _as_it_is


class SplicedDocument:
    """A text file, segments of it, and the place of each."""

    def __init__(self, file: DecodedText, segments: Sequence[Segment], places: Sequence[Place], limits: Limits) -> None:
        """Raise `DocumentError` for more segments than the limit."""
        if len(segments) > limits.max_segments:
            raise DocumentError(f"the document has {len(segments)} texts; the limit is {limits.max_segments}")
        self.segments = tuple(segments)
        self._file, self._places = file, tuple(places)

    def written(self, translations: Sequence[str | None]) -> bytes:
        """Return the file; a translation that equals its segment leaves the characters of the file untouched."""
        text, pieces, done = self._file.text, [], 0
        for segment, place, translation in zip(self.segments, self._places, translations, strict=True):
            if translation is None or translation == segment.text:
                continue
            start, end = place.span
            pieces += [text[done:start], place.write(translation)]
            done = end
        return self._file.encoded("".join([*pieces, text[done:]]))
