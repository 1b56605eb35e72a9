"""Servers on loopback that tests of stores start: PostgreSQL and S3."""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["postgres_server", "s3_server"]


@contextmanager
def postgres_server() -> Generator[str]:
    """Start PostgreSQL, and give the URL of an empty database.

    Skips the test, with a reason, where there is none.
    """
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = shutil.which("initdb") or (str(versions[-1]) if versions else None)
    if initdb is None:
        pytest.skip("there is no PostgreSQL server: install Debian's package postgresql")
    # initdb refuses the superuser, so the server runs as somebody without rights.
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108  # a disk in memory is faster
    folder.chmod(0o700)
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = str(folder / "data")
    options = f"-c listen_addresses=127.0.0.1 -c shared_buffers=16MB -p {port} -k {folder}"

    def run(tool: str, *arguments: str) -> None:
        command = [str(Path(initdb).with_name(tool)), "-D", data, *arguments]
        subprocess.run(
            command,
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=user and user.pw_uid,
            group=user and user.pw_gid,
            extra_groups=user and [],
        )

    try:
        run(
            "initdb",
            "-A",
            "trust",
            "-U",
            "promptkit",
            "--no-sync",
            "--no-instructions",
            "--encoding=UTF8",
            "--locale=C",
        )
        run("pg_ctl", "-w", "-o", options, "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql://promptkit@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def s3_server(bucket: str) -> Generator[dict[str, str]]:
    """Start a server of S3 with one bucket, and give the environment in which obstore finds it.

    Skips the test where moto is missing.
    """
    app = pytest.importorskip("moto.moto_server.werkzeug_app", reason="the server of S3 needs moto")
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # One request at a time: moto looks for an object and writes it in two steps, and between them
    # another request could write.
    server = make_server(
        "127.0.0.1", 0, app.DomainDispatcherApplication(app.create_backend_app), threaded=False
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(  # noqa: S310  # loopback
            urllib.request.Request(f"{address}/{bucket}", method="PUT")  # noqa: S310  # loopback
        ) as answer:
            assert answer.status == 200
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
