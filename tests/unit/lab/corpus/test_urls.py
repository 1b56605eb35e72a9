"""Files behind URLs are read and written like files of this machine: S3, the web and Hugging Face, each from a server on loopback."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from promptkit.errors import TranscriptError
from promptkit.lab.corpus import FitJob, ImportJob, list_inputs, run_job
from promptkit.lab.engines import open_engine
from promptkit.lab.recordings.importing import import_recording
from promptkit.lab.recordings.reading.remote import remote_exists, write_remote
from promptkit.transcript.stores.addresses import list_transcripts
from tests.servers import s3_server

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import BinaryIO

pytest.importorskip("obstore", reason="URLs need obstore: pip install '.[objects]'")

TALK = json.dumps(
    [{"role": "user", "content": "Mend it."}, {"role": "assistant", "content": "It is mended."}]
).encode()


def put(url: str, content: bytes) -> None:
    def write(file: BinaryIO) -> None:
        file.write(content)

    write_remote(url, write)


@pytest.fixture(scope="module")
def bucket() -> Generator[str]:
    with s3_server("logs") as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        for name in ("a b.json", "c.json", "deep/d#1.json", "deep/.hidden.json", "deep/e.txt"):
            if "#" not in name:  # a URL with one is a conversation of a store
                put(f"s3://logs/in/{name}", TALK)
        yield "s3://logs"


@pytest.mark.slow
def test_a_glob_lists_the_objects_of_a_bucket(bucket: str) -> None:
    assert sorted(list_inputs(f"{bucket}/in/**/*.json")) == [
        f"{bucket}/in/a b.json",
        f"{bucket}/in/c.json",
    ]
    assert sorted(list_inputs(f"{bucket}/in/*/*")) == [f"{bucket}/in/deep/e.txt"]


def test_a_run_reads_and_writes_objects_and_its_rows_are_those_of_files(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    local = tmp_path / "c.json"
    local.write_bytes(TALK)
    with open_engine(workers=1) as engine:
        summary = run_job(
            FitJob(budget=500),
            [f"{bucket}/in/*.json", f"{bucket}/in/none.json"],
            f"{bucket}/out.jsonl",
            executor=engine,
        )
        run_job(FitJob(budget=500), [local], "local.jsonl", executor=engine)
        import obstore
        from obstore.store import S3Store

        rows = [
            json.loads(line)
            for line in bytes(obstore.get(S3Store("logs"), "out.jsonl").bytes()).splitlines()
        ]
    assert [row["file"] for row in rows] == [
        f"{bucket}/in/{name}" for name in ("a b.json", "c.json", "none.json")
    ]
    assert rows[2] == {
        "file": f"{bucket}/in/none.json",
        "error": f"there is no file {bucket}/in/none.json.",
    }
    assert summary.failures == 1
    assert {**rows[1], "file": str(local)} == json.loads(Path("local.jsonl").read_bytes())
    assert remote_exists(f"{bucket}/out.jsonl")
    assert list(tmp_path.glob("*.unfinished")) == []


@pytest.mark.slow
def test_recordings_become_conversations_of_a_store_once(bucket: str, tmp_path: Path) -> None:
    job = ImportJob(out=f"{bucket}/talks", root=f"{bucket}/in/")
    # as after a worker that died
    first, again = job.run(f"{bucket}/in/c.json"), job.run(f"{bucket}/in/c.json")
    assert first == again
    assert list_transcripts(f"{bucket}/talks") == [f"{bucket}/talks#c.json"]
    other = tmp_path / "c.json"
    other.write_bytes(TALK.replace(b"mended", b"broken"))
    with pytest.raises(TranscriptError, match="the conversation already has entries"):
        ImportJob(out=f"{bucket}/talks", root=f"{tmp_path}/").run(str(other))


class _Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the base class has it
        pass


@pytest.fixture
def web(tmp_path: Path) -> Generator[str]:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Files, directory=str(tmp_path))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_file_of_the_web_is_read_and_errors_name_its_address(web: str, tmp_path: Path) -> None:
    (tmp_path / "a b.json").write_bytes(TALK)
    (tmp_path / "bad.json").write_bytes(b"no recording")
    assert import_recording(f"{web}/a%20b.json").counts.messages == 2
    for name, why in (
        ("none.json", f"there is no file {web}/none.json"),
        ("bad.json", f"{web}/bad.json"),
    ):
        with pytest.raises(TranscriptError, match=why):
            import_recording(f"{web}/{name}")
    with pytest.raises(ValueError, match="has a query, which cannot be sent"):
        import_recording(f"{web}/a.json?key=1")


class _Hub(http.server.BaseHTTPRequestHandler):
    """What is asked of Hugging Face for a data set of two files."""

    def do_GET(self) -> None:  # as the base class has it
        path = unquote(urlsplit(self.path).path)
        names = ("logs/a.json", "logs/b.txt")
        if path.startswith("/api/datasets/us/talks/tree/main"):
            under = path.removeprefix("/api/datasets/us/talks/tree/main").strip("/")
            self.answer(
                json.dumps(
                    [
                        {"type": "file", "path": name, "size": len(TALK), "oid": "0" * 40}
                        for name in names
                        if name.startswith(under)
                    ]
                ).encode()
            )
        elif path.startswith("/api/datasets/us/talks/paths-info"):
            self.answer(
                json.dumps(
                    [{"type": "file", "path": names[0], "size": len(TALK), "oid": "0" * 40}]
                ).encode()
            )
        elif path.startswith("/api/datasets/us/talks"):
            self.answer(json.dumps({"id": "us/talks", "sha": "1" * 40, "siblings": []}).encode())
        elif path == f"/datasets/us/talks/resolve/main/{names[0]}":
            self.answer(TALK)
        else:
            self.send_error(404)

    do_POST = do_HEAD = do_GET  # noqa: N815  # as above

    def answer(self, content: bytes) -> None:
        first, last = 0, len(content) - 1
        if sent := self.headers.get("Range"):
            first, last = (int(part or last) for part in sent.removeprefix("bytes=").split("-"))
            last = min(last, len(content) - 1)
        self.send_response(206 if sent else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", '"0"')
        self.send_header("X-Repo-Commit", "1" * 40)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[first : last + 1])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the base class has it
        pass


@pytest.mark.slow
def test_a_data_set_of_hugging_face_is_listed_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip(
        "huggingface_hub.constants",
        reason="hf:// needs huggingface_hub: pip install '.[huggingface]'",
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    # the environment variable is read when the library is imported
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(
        constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
    )
    try:
        (found,) = list_inputs("hf://datasets/us/talks/logs/*.json")
        assert found == "hf://datasets/us/talks/logs/a.json"
        assert import_recording(found).counts.messages == 2
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("s3://b/x.json", "obstore.store", "objects"),
        ("https://h/x.json", "obstore.store", "objects"),
        ("hf://datasets/a/b/x.json", "huggingface_hub", "huggingface"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        TranscriptError,
        match=rf"{url.partition(':')[0]}:// needs .*'\.\[{extra}\]'` in a checkout of promptkit",
    ):
        import_recording(url)
