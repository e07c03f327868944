"""A real Synapse on loopback, from an environment of its own (it is AGPL, and wants other versions)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SERVER_NAME = "test.example"
START_SECONDS_MAX = 120.0
INSTALL_SECONDS_MAX = 240.0
SHARED_SECRET = "only-for-tests"  # noqa: S105
STARTER = """
import ctypes, runpy, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: it dies with the thread that started it, however that ends
sys.argv = ["synapse.app.homeserver", "-c", sys.argv[1]]
runpy.run_module("synapse.app.homeserver", run_name="__main__")
"""
UNLIMITED = {"per_second": 100_000, "burst_count": 100_000}


def interpreter() -> Path | None:
    """The Python that has Synapse, installed when it is missing; None when it cannot be installed."""
    given = os.environ.get("HANSARD_SYNAPSE_PYTHON")
    if given:
        return Path(given)
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "synapse.py"],
        capture_output=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    return ROOT / ".synapse" / "bin" / "python" if made.returncode == 0 else None


@cache
def shared_server() -> Synapse | None:
    """The homeserver of this process, started when it is first asked for; None where there is none.

    Its files are in memory where that is possible: it waits for the disk at every event, and nobody here cuts power.
    """
    python = interpreter()
    if python is None:
        return None
    memory = Path("/dev/shm")  # noqa: S108
    folder = tempfile.mkdtemp(prefix="synapse-", dir=memory if memory.is_dir() else None)
    server = Synapse(python, Path(folder))
    server.start()
    return server


def free_port() -> int:
    """A port that nobody uses just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def limits() -> dict[str, Any]:
    """Every rate limit out of the way; `throttle` sets one for a user."""
    return {
        "rc_message": UNLIMITED,
        "rc_registration": UNLIMITED,
        "rc_login": dict.fromkeys(("address", "account", "failed_attempts"), UNLIMITED),
        "rc_joins": {"local": UNLIMITED, "remote": UNLIMITED},
        "rc_joins_per_room": UNLIMITED,
        "rc_invites": dict.fromkeys(("per_room", "per_user", "per_issuer"), UNLIMITED),
        "rc_admin_redaction": UNLIMITED,
        "rc_3pid_validation": UNLIMITED,
        "rc_room_creation": UNLIMITED,
        "rc_media_create": UNLIMITED,
        "rc_key_requests": UNLIMITED,
        "rc_presence": {"per_user": UNLIMITED},
        "rc_delayed_event_mgmt": UNLIMITED,
        "rc_user_directory": UNLIMITED,
    }


class Synapse:
    """One homeserver: its files in a folder, its port the same for as long as it lives."""

    def __init__(self, python: Path, folder: Path, **changes: Any) -> None:  # noqa: ANN401
        self._python, self.folder = python, folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        # The server dies with the thread that started it, so that thread has to live as long as this object.
        self._starter = ThreadPoolExecutor(max_workers=1)
        self._admin_token = ""
        folder.mkdir(parents=True, exist_ok=True)
        key = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        (folder / "signing.key").write_text(f"ed25519 a_test {key}\n")
        (folder / "log.json").write_text(json.dumps(self._log_config()))
        self._config: dict[str, Any] = {
            "server_name": SERVER_NAME,
            "public_baseurl": f"{self.url}/",
            "pid_file": str(folder / "pid"),
            "listeners": [
                {
                    "port": self.port,
                    "type": "http",
                    "bind_addresses": ["127.0.0.1"],
                    "resources": [{"names": ["client"]}],
                }
            ],
            "database": {"name": "sqlite3", "args": {"database": str(folder / "homeserver.db")}},
            "log_config": str(folder / "log.json"),
            "media_store_path": str(folder / "media"),
            "signing_key_path": str(folder / "signing.key"),
            "registration_shared_secret": SHARED_SECRET,
            "macaroon_secret_key": "m" * 32,
            "form_secret": "f" * 32,
            "trusted_key_servers": [],
            "federation_domain_whitelist": [],
            "report_stats": False,
            "enable_registration": True,
            "enable_registration_without_verification": True,
            "bcrypt_rounds": 4,
            "presence": {"enabled": False},
            "max_upload_size": "5M",
            **limits(),
            **changes,
        }

    def _log_config(self) -> dict[str, Any]:
        handler = {"class": "logging.FileHandler", "filename": str(self.folder / "synapse.log"), "level": "WARNING"}
        return {"version": 1, "handlers": {"file": handler}, "root": {"level": "WARNING", "handlers": ["file"]}}

    def start(self) -> None:
        """Start, and wait until it answers."""
        (self.folder / "homeserver.json").write_text(json.dumps(self._config))
        self._process = self._starter.submit(self._spawn).result()
        self._wait()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("ab") as output:
            return subprocess.Popen(
                [self._python, "-c", STARTER, self.folder / "homeserver.json"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            )

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError):
                if self.ask("GET", "/health")[0] == 200:
                    return
            time.sleep(0.05)
        output = (self.folder / "output").read_text(errors="replace")
        raise AssertionError(f"Synapse did not start:\n{output[-2000:]}")

    def kill(self) -> None:
        """End it without warning."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(timeout=120)
        self._process = None

    def close(self) -> None:
        """End it for good, and leave nothing behind."""
        self.kill()
        self._starter.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)

    def register(self, localpart: str, *, password: str = "") -> str:
        """Make a user; return the password."""
        password = password or secrets.token_urlsafe(12)
        self._register(localpart, password, is_admin=False)
        return password

    def throttle(self, user_id: str, *, per_second: int = 0, burst: int = 0) -> None:
        """Limit how often one user may send; 0: as often as they like."""
        if not self._admin_token:
            made = self._register(f"admin-{secrets.token_hex(4)}", secrets.token_urlsafe(12), is_admin=True)
            self._admin_token = made["access_token"]
        path = f"/_synapse/admin/v1/users/{user_id}/override_ratelimit"
        self._admin("POST", path, {"messages_per_second": per_second, "burst_count": burst}, self._admin_token)

    def _register(self, localpart: str, password: str, *, is_admin: bool) -> dict[str, Any]:
        path = "/_synapse/admin/v1/register"
        nonce = self._admin("GET", path)["nonce"]
        signed = f"{nonce}\0{localpart}\0{password}\0{'admin' if is_admin else 'notadmin'}".encode()
        mac = hmac.digest(SHARED_SECRET.encode(), signed, hashlib.sha1).hex()
        body = {"nonce": nonce, "username": localpart, "password": password, "admin": is_admin, "mac": mac}
        return self._admin("POST", path, body)

    def _admin(self, method: str, path: str, body: dict[str, Any] | None = None, token: str = "") -> dict[str, Any]:
        status, answer = self.ask(method, path, body, token)
        assert status == 200, answer
        found: dict[str, Any] = json.loads(answer)
        return found

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, token: str = "") -> tuple[int, bytes]:
        """Make one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            data = json.dumps(body).encode() if body is not None else None
            headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def user_id(localpart: str) -> str:
    """The full name of a user of the test homeserver."""
    return f"@{localpart}:{SERVER_NAME}"
