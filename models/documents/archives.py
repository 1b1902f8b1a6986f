"""ZIP archives of others, such as docx: bounds that are checked before anything is unpacked."""

import io
import zipfile

from models.documents.document import DocumentError, Limits
from models.documents.xml_files import check_xml

__all__ = ["check_archive"]

_SMALL = 1 << 20
"""Bytes of an unpacked file up to which its ratio does not count."""
_XML = (".xml", ".rels")


def check_archive(content: bytes, limits: Limits, form: str) -> None:
    """Raise `DocumentError` for bytes that are no archive, and for archives that are not accepted.

    These exceed a limit, are encrypted, or hold XML with a document type.

    The sizes that an archive states are those that `zipfile` unpacks at most.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            _check_sizes(members, limits, form)
            for member in members:
                if member.filename.lower().endswith(_XML):
                    check_xml(archive.read(member), limits, f"{form}: {member.filename[:80]}")
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise DocumentError(f"{form}: {error}") from None


def _check_sizes(members: list[zipfile.ZipInfo], limits: Limits, form: str) -> None:
    if len(members) > limits.max_members:
        raise DocumentError(f"{form}: the archive has {len(members)} files; the limit is {limits.max_members}")
    unpacked = sum(member.file_size for member in members)
    if unpacked > limits.max_unpacked_bytes:
        raise DocumentError(
            f"{form}: the archive has {unpacked} bytes unpacked; the limit is {limits.max_unpacked_bytes}"
        )
    for member in members:
        if member.file_size > _SMALL and member.file_size > limits.max_ratio * max(1, member.compress_size):
            raise DocumentError(f"{form}: a file of the archive is compressed by more than {limits.max_ratio} to 1")
        if member.flag_bits & 1:
            raise DocumentError(f"{form}: the archive is encrypted")
    if len({member.filename for member in members}) < len(members):
        raise DocumentError(f"{form}: the archive has two files of one name")
