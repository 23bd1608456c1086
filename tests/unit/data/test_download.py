"""`vpdr data get` against a server on loopback that supports ranges, and that breaks off in the middle."""

import hashlib
import io
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from tests.contracts.plug_ins import DUMMY_BENCHMARK
from vpdr.cli import main
from vpdr.data import BENCHMARK_SPECS
from vpdr.data.download import download
from vpdr.data.spec import DownloadFile
from vpdr.validation import InvalidInput

CONTENT = np.random.default_rng(0).integers(256, size=300_000, dtype=np.uint8).tobytes()
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


class Server(ThreadingHTTPServer):
    """Files by path; a number in `breaks` ends that many replies in the middle."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.breaks, self.ranges, self.has_ranges = {"/file": CONTENT}, 0, [], True

    def url(self, path="/file"):
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.has_ranges else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.server.breaks:
            self.server.breaks -= 1
            self.wfile.write(content[start : start + 100_000])
            return
        self.wfile.write(content[start:])

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def published(server, path="/file", **changes):
    fields = {"path": "sub/file", "size": len(CONTENT), "md5": MD5, "domains": ("grey",), **changes}
    return DownloadFile(urls=(server.url(path),), **fields)


def test_a_broken_connection_goes_on_where_it_stopped(server, tmp_path):
    server.breaks = 2
    seen = []
    path = download(published(server), tmp_path, lambda *each: seen.append(each), pause=0)
    assert path.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-", "bytes=200000-"]
    assert seen[-1] == ("sub/file", len(CONTENT), len(CONTENT))
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_an_interrupted_download_goes_on_at_the_next_call(server, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.part").write_bytes(CONTENT[:1000])
    assert download(published(server), tmp_path, pause=0).read_bytes() == CONTENT
    assert server.ranges == ["bytes=1000-"]


def test_a_part_that_is_whole_or_too_long(server, tmp_path):
    part = tmp_path / "sub" / "file.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT)
    assert download(published(server), tmp_path, pause=0).read_bytes() == CONTENT
    assert server.ranges == []
    (tmp_path / "sub" / "file").unlink()
    part.write_bytes(CONTENT + b"x")
    assert download(published(server, size=0), tmp_path, pause=0).read_bytes() == CONTENT


def test_a_server_without_ranges_sends_everything_again(server, tmp_path):
    server.has_ranges, server.breaks = False, 1
    assert download(published(server), tmp_path, pause=0).read_bytes() == CONTENT


def test_the_next_address_is_tried(server, tmp_path):
    file = replace(published(server), urls=(server.url("/nothing"), "http://127.0.0.1:9/file", server.url()))
    assert download(file, tmp_path, pause=0).read_bytes() == CONTENT


def test_other_content_is_refused_and_removed(server, tmp_path):
    server.files["/file"] = CONTENT[:-1] + b"?"
    with pytest.raises(InvalidInput, match="expected sub/file as published, got the checksum"):
        download(published(server), tmp_path, pause=0)
    assert list((tmp_path / "sub").iterdir()) == []


def test_a_file_that_exists_is_never_overwritten(server, tmp_path):
    target = tmp_path / "sub" / "file"
    target.parent.mkdir()
    target.write_bytes(b"mine")
    with pytest.raises(InvalidInput, match="exists and has 4 bytes instead of 300,000; it is not overwritten"):
        download(published(server), tmp_path, pause=0)
    assert target.read_bytes() == b"mine"
    target.write_bytes(CONTENT)
    assert download(published(server), tmp_path, pause=0) == target
    assert server.ranges == []


def test_no_answer_is_one_line(server, tmp_path):
    with pytest.raises(
        InvalidInput, match=r"cannot download sub/file from .*/nothing: 404 .*; check the network"
    ) as error:
        download(published(server, "/nothing"), tmp_path, pause=0)
    assert "\n" not in str(error.value)
    with pytest.raises(InvalidInput, match="Connection refused"):
        download(replace(published(server), urls=("http://127.0.0.1:9/file",)), tmp_path, pause=0)


def archive(kind, names):
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as out:
            for name in names:
                out.writestr(name, name)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as out:
            for name in names:
                entry = tarfile.TarInfo(name)
                entry.size = len(name)
                out.addfile(entry, io.BytesIO(name.encode()))
            link = tarfile.TarInfo("top/images/link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            out.addfile(link)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_is_unpacked_beside_itself_and_nowhere_else(server, tmp_path, kind):
    names = ["top/images/a.jpg", "top/other/b.jpg", "top/images/../../../../c.jpg", "/top/images/d.jpg"]
    server.files["/file"] = archive(kind, names)
    file = published(server, size=0, md5="")
    file = replace(file, path=f"in/x.{kind}", members="*/images/*")
    (tmp_path / "in" / "top" / "images").mkdir(parents=True)
    download(file, tmp_path / "in", pause=0)
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert written == ["in/in/top/images/a.jpg", f"in/in/x.{kind}"]


def test_the_command_shows_size_and_licence_downloads_and_checks(server, tmp_path, capsys, monkeypatch):
    spec = replace(DUMMY_BENCHMARK, name="served", licence="for tests only", downloads=(published(server),))
    BENCHMARK_SPECS.register("served", spec)
    try:
        command = ["data", "get", "served", "--root", str(tmp_path / "new")]
        assert main(command) == 2
        assert "add --yes" in capsys.readouterr().err
        assert main([*command, "--yes"]) == 0
        out = capsys.readouterr().out
        assert "0.3 MB, from http://127.0.0.1" in out
        assert "licence: for tests only" in out
        assert out.rstrip().endswith("is whole")
        assert (tmp_path / "new" / "sub" / "file").read_bytes() == CONTENT
        assert main([*command, "--domains", "blue", "--yes"]) == 2
        assert "no direct address for blue; get it by hand" in capsys.readouterr().err
    finally:
        BENCHMARK_SPECS.unregister("served")


def test_every_address_belongs_to_a_domain_and_lies_in_its_own_file():
    for spec in BENCHMARK_SPECS.values():
        paths = [file.path for file in spec.downloads]
        assert len(set(paths)) == len(paths)
        for file in spec.downloads:
            assert set(file.domains) <= {domain.name for domain in spec.domains}
            assert all(url.startswith(("https://", "http://ufldl.stanford.edu/")) for url in file.urls)
            assert file.md5 or file.members  # what has no published checksum is checked by its content
