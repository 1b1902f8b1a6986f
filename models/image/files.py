"""The structure of PNG and JPEG files, looked at before they are decoded.

A decoder's time and memory follow from an image's pixels, which are limited, except where a file is made to cost more:
many chunks or segments, which are read one by one, metadata that unpacks to a thousand times its size, or scans of a
progressive JPEG, each of which goes over all pixels.
"""

import re

from models.errors import QueryError

__all__ = ["check_structure"]

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_MAX_CHUNKS = 1 << 16
"""Chunks of a PNG file; encoders write pixels in chunks of 8 KB or more."""
_COMPRESSED = {b"iCCP", b"iTXt", b"zTXt"}
_MAX_COMPRESSED = 16
"""Chunks of compressed metadata in a PNG file, each of which the decoder unpacks to at most 1 MiB."""
_MAX_SEGMENTS = 4096
"""Segments of a JPEG file; a colour profile or a second image within takes up to some hundreds."""
_MAX_SCANS = 64
"""Scans of a JPEG file; encoders write some ten."""
_MAX_JUNK = 1 << 16
"""Bytes between segments before the first scan, which the decoder skips one by one."""
_MARKER = re.compile(rb"\xff[^\x00\x01\xff\xd0-\xd8]")
"""Marker of a segment with parameters, or of the end (ITU-T T.81, B.1.1): no stuffed byte, fill byte or restart."""
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9


def check_structure(image: bytes) -> None:
    """Raise `QueryError` for a PNG or JPEG file made to take much memory or time; other bytes are left alone."""
    if image.startswith(_PNG):
        _check_png(image)
    elif image.startswith(_JPEG):
        _check_jpeg(image)


def _check_png(image: bytes) -> None:
    place, compressed = len(_PNG), 0
    for _ in range(_MAX_CHUNKS):
        kind = image[place + 4 : place + 8]
        if not kind or kind == b"IEND":
            return
        compressed += kind in _COMPRESSED
        if compressed > _MAX_COMPRESSED:
            raise QueryError(f"the image has more than {_MAX_COMPRESSED} chunks of compressed metadata")
        place += 12 + int.from_bytes(image[place : place + 4])
    raise QueryError(f"the image has more than {_MAX_CHUNKS} chunks")


def _check_jpeg(image: bytes) -> None:
    place, scans, junk = len(_JPEG), 0, 0
    for _ in range(_MAX_SEGMENTS):
        found = _MARKER.search(image, place)
        if found is None or (marker := image[found.start() + 1]) == _END_OF_IMAGE:
            return
        junk += 0 if scans else found.start() - place
        if junk > _MAX_JUNK:
            raise QueryError(f"the image is damaged: more than {_MAX_JUNK} bytes before its pixels have no meaning")
        scans += marker == _START_OF_SCAN
        if scans > _MAX_SCANS:
            raise QueryError(f"the image has more than {_MAX_SCANS} scans")
        place = found.end() + int.from_bytes(image[found.end() : found.end() + 2])
    raise QueryError(f"the image has more than {_MAX_SEGMENTS} segments")
