"""Makes an authority and certificates of hosts by `openssl`, as an operator does."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

OLD, LATE = "20200102000000Z", "20990101000000Z"
"""When a certificate ends."""
_CONFIG = """
[ca]
default_ca = here
[here]
database = index.txt
new_certs_dir = .
serial = serial
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
"""
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """An authority in a folder of its own; skips the test where there is no `openssl`."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self._folder = folder
        (folder / "ca.cnf").write_text(_CONFIG)
        (folder / "index.txt").write_text("")
        (folder / "serial").write_text("01")
        self.certificate = folder / "ca.pem"
        self._run("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=a", "-days", "99")

    def sign(self, host: str, until: str, since: str = "20200101000000Z") -> tuple[Path, Path]:
        """Return certificate and key of a host, good between two times as openssl writes them."""
        name = f"{host}-{until}"
        request = ("-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}")
        self._run("req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", *request)
        signed = (
            "-in",
            f"{name}.csr",
            "-out",
            f"{name}.pem",
            "-startdate",
            since,
            "-enddate",
            until,
            "-notext",
        )
        self._run("ca", "-batch", "-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key", *signed)
        return self._folder / f"{name}.pem", self._folder / f"{name}.key"

    def _run(self, *arguments: str) -> None:
        command = ["openssl", *arguments]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
