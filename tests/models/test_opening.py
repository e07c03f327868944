"""Names, keys and addresses: where a model is found, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from hansard.domain.requests import FailureKind
from hansard.errors import InvalidInput
from hansard.models.clients import STYLES, find_access, is_loopback, trusted
from hansard.models.endings import cost_micros
from hansard.models.failures import missing_package
from hansard.models.pydantic import ProviderModel, is_installed, open_provider
from tests.models.helpers import KEY, STALL_SECONDS, ask, asking
from tests.models.providers.behaviour import Behaviour
from tests.models.providers.server import Provider

VARIABLES = {"openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"), "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")}


@pytest.mark.parametrize("name", ["", "openai", "openai:", ":gpt", "gpt-5", "mistral:large", "OPENAI:gpt"])
def test_names_that_are_none(name: str) -> None:
    """A name that means no provider is refused at once, with the forms that there are."""
    with pytest.raises(InvalidInput, match="openai:NAME"):
        open_provider(name, key=KEY, base_url=None, stall_seconds=1)


async def test_environment_is_read(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key and an address those of the environment are used, as the provider's own library does."""
    key_variable, address_variable = VARIABLES[style]
    async with Provider(style, key="from-the-environment") as provider:
        monkeypatch.setenv(key_variable, "from-the-environment")
        monkeypatch.setenv(address_variable, provider.base_url)
        model = open_provider(f"{style}:a/b:c", key=None, base_url=None, stall_seconds=STALL_SECONDS)
        answer = await ask(model)
        await model.close()
    assert answer.text == "Hello, world."
    assert provider.answers[0].body["model"] == "a/b:c"


async def test_what_is_given_wins(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key and an address that are given count, whatever the environment says."""
    key_variable, address_variable = VARIABLES[style]
    monkeypatch.setenv(key_variable, "wrong")
    monkeypatch.setenv(address_variable, "http://127.0.0.1:9")
    async with Provider(style, key=KEY) as provider, asking(provider) as model:
        assert (await ask(model)).text == "Hello, world."


async def test_server_without_keys(style: str) -> None:
    """A server of one's own is asked without a key."""
    async with Provider(style) as provider, asking(provider, key=None) as model:
        assert (await ask(model)).text == "Hello, world."


async def test_wrong_key(style: str) -> None:
    """A key that the provider does not know is a failure of its own kind; the provider echoes it, we do not."""
    async with Provider(style, key="the right one") as provider, asking(provider) as model:
        failure = (await ask(model)).failure
    assert failure.kind is FailureKind.UNAUTHORISED
    assert KEY not in failure.text


async def test_no_key_for_the_provider_itself(style: str) -> None:
    """Without a key nobody is called, and the variable is named."""
    model = open_provider(f"{style}:m", key=None, base_url=None, stall_seconds=STALL_SECONDS)
    failure = (await ask(model)).failure
    assert failure.kind is FailureKind.UNAUTHORISED
    assert VARIABLES[style][0] in failure.text


def test_a_missing_package_is_said_to_be_missing() -> None:
    """A provider whose package is not installed is a failure that says what to do."""
    assert not is_installed("google.no_such_package")
    assert not is_installed("no_such_package.at_all")
    failure = missing_package("google-genai")
    assert failure.kind is FailureKind.MISSING
    assert "google-genai" in failure.text


async def test_first_requests_at_once_share_one_client(style: str) -> None:
    """Many first turns at once make one client, and each gets its own answer."""
    async with Provider(style) as provider, asking(provider) as model:
        answers = await asyncio.gather(*(ask(model) for _ in range(20)))
    assert {answer.text for answer in answers} == {"Hello, world."}
    assert len(provider.answers) == 20


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """A certificate of this machine's own, which the clients of one test believe."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    both = tmp_path / "both.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both.write_bytes(certificate.public_bytes(Encoding.PEM) + secret)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(both)
    monkeypatch.setenv("SSL_CERT_FILE", str(both))
    trusted.cache_clear()
    yield context
    trusted.cache_clear()


async def test_connections_are_used_again(style: str, tls: ssl.SSLContext) -> None:
    """Requests to the provider's own host share a connection, for an encrypted one takes long to make."""
    async with Provider(style, tls=tls) as provider:
        own = msgspec.structs.replace(STYLES[style], base_url=provider.base_url)
        access = find_access(own, "test-model", key=KEY, base_url=None, stall_seconds=STALL_SECONDS)
        model = ProviderModel(f"{style}:test-model", access)
        for _ in range(5):
            assert (await ask(model)).text == "Hello, world."
        await model.close()
    assert provider.connections_count < 5, "one, unless this machine stalled longer than an idle one is kept"


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_server_that_hangs_up_after_each_answer(
    style: str,
    tls: ssl.SSLContext,
    encrypted: bool,  # noqa: FBT001
) -> None:
    """llama.cpp closes the connection after a streamed answer without saying so: no request is sent on its remains."""
    given = tls if encrypted else None
    async with Provider(style, [Behaviour(hangs_up=True)], tls=given) as provider, asking(provider) as model:
        for _ in range(5):
            assert (await ask(model)).text == "Hello, world."
    assert provider.connections_count == 5


async def test_closing_twice_and_before_use(style: str) -> None:
    """Closing is always possible, and a closed model can be asked again."""
    async with Provider(style) as provider, asking(provider) as model:
        await model.close()
        assert (await ask(model)).text == "Hello, world."
        await model.close()
        await model.close()


async def test_proxy_of_the_environment_is_not_for_loopback(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on this machine is reached although a proxy is set for everything else."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with Provider(style) as provider, asking(provider) as model:
        assert (await ask(model)).text == "Hello, world."


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://127.8.8.8", True),
        ("http://[::1]:11434/v1", True),
        ("http://localhost:11434/v1", True),
        ("https://api.openai.com/v1", False),
        ("http://localhost.example.com", False),
        ("http://10.0.0.1", False),
        ("nonsense", False),
    ],
)
def test_loopback(url: str, expected: bool) -> None:  # noqa: FBT001
    """Only this machine counts as this machine."""
    assert is_loopback(url) is expected


def test_prices() -> None:
    """A known model at its provider has a price; an unknown one, or the same name elsewhere, has none."""
    from pydantic_ai.usage import RequestUsage  # noqa: PLC0415

    usage = RequestUsage(input_tokens=1_000_000, output_tokens=100_000)
    openai, anthropic = STYLES["openai"].base_url, STYLES["anthropic"].base_url
    assert cost_micros(usage, "gpt-4o", openai) == 3_500_000
    assert (cost_micros(usage, "claude-sonnet-4-5", anthropic) or 0) > 1_000_000
    assert cost_micros(usage, "gpt-4o", "http://127.0.0.1:1/v1") is None
    assert cost_micros(usage, "never-heard-of", openai) is None
    assert cost_micros(RequestUsage(), "gpt-4o", openai) is None


def test_secrets_of_an_access() -> None:
    """Failures know all that may not be said, and the placeholder for no key is no secret."""
    access = find_access(
        STYLES["openai"],
        "m",
        key=KEY,
        base_url="http://me:hush@host:1/v1",
        stall_seconds=1,
    )
    assert access.host == "host:1"
    assert set(access.secrets) == {KEY, "hush", "me"}
    bare = find_access(STYLES["openai"], "m", key=None, base_url="http://h", stall_seconds=1)
    assert bare.secrets == ()


def test_imports_are_late() -> None:
    """To open a model costs none of the libraries; they come with the first request."""
    code = (
        "import sys\n"
        "from hansard.models.pydantic import open_provider\n"
        "open_provider('openai:m', key='k', base_url=None, stall_seconds=1)\n"
        "print(sorted({'pydantic_ai', 'pydantic', 'openai', 'anthropic', 'httpx2'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]"


def test_nothing_is_sent_elsewhere() -> None:
    """A whole turn opens no connection but the one to the provider, and no telemetry is set up by the libraries."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.models.quiet"], check=True, capture_output=True, text=True, timeout=100
    )
    found = json.loads(done.stdout)
    assert len(found["ports"]) == 2
    assert found["connected"] == found["ports"]
    assert found["looked_up"] == []
    assert (found["tracer"], found["logfire"]) == ("ProxyTracerProvider", False)
