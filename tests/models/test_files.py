"""Only regular files of bounded size are read, and each byte once."""

import hashlib
import os
import socket
import threading

import pytest

from models.files import NotAFile, NotWritten, TooLarge, open_regular, read_regular, sha256_of_regular

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_file_is_read(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert read_regular(tmp_path / "abc", 3) == b"abc"
    assert sha256_of_regular(tmp_path / "abc") == ABC


def test_a_link_to_a_file_is_the_file(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("abc")
    (tmp_path / "link to a link").symlink_to("link")
    assert read_regular(tmp_path / "link to a link", 3) == b"abc"


def test_the_copy_has_the_bytes_that_were_hashed(tmp_path):
    content = os.urandom((1 << 20) * 2 + 17)
    (tmp_path / "file").write_bytes(content)
    digest = sha256_of_regular(tmp_path / "file", copy_to=tmp_path / "copy")
    assert digest == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "copy").read_bytes() == content


def test_an_existing_file_is_not_written_over(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    with pytest.raises(NotWritten):
        sha256_of_regular(tmp_path / "abc", copy_to=tmp_path / "abc")
    assert (tmp_path / "abc").read_bytes() == b"abc"


def fifo(path):
    os.mkfifo(path)


def directory(path):
    path.mkdir()


def endless(path):
    path.symlink_to("/dev/zero")


def listener(path):
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [(fifo, "a FIFO"), (directory, "a directory"), (endless, "a device"), (listener, "a socket")],
)
def test_what_is_no_file_is_refused_at_once(tmp_path, make, kind):
    make(tmp_path / "x")
    for read in (lambda path: read_regular(path, 10), sha256_of_regular, open_regular):
        with pytest.raises(NotAFile, match=f"it is {kind}, not a file"):
            read(tmp_path / "x")


def test_a_fifo_that_takes_the_place_of_a_file_blocks_nothing(tmp_path, monkeypatch):
    """Between the check and the opening, anything may happen to a path."""
    (tmp_path / "abc").write_bytes(b"abc")
    before = os.stat(tmp_path / "abc")
    (tmp_path / "abc").unlink()
    os.mkfifo(tmp_path / "abc")
    monkeypatch.setattr("models.files.os.stat", lambda path: before)
    caught = []

    def read():
        with pytest.raises(NotAFile):
            read_regular(tmp_path / "abc", 10)
        caught.append(True)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(10)
    assert caught


def test_a_larger_file_than_allowed_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooLarge, match="it has 1,099,511,627,776 bytes; the limit is 1,000"):
        read_regular(tmp_path / "sparse", 1000)
    with pytest.raises(TooLarge):
        sha256_of_regular(tmp_path / "sparse", 1000)


def test_a_file_of_the_kernel_without_a_size_has_no_content():
    """Some, such as /proc/kmsg, would block their reader."""
    assert read_regular(os.path.realpath("/proc/self/status"), 10) == b""


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nothing", 10)
