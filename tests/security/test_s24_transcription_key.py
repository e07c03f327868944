"""S24: the key of a provider goes to that provider's host, also when voice notes are written down elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.app.wiring import open_transcriber
from hansard.domain.settings import Settings
from hansard.domain.settings.agent import Transcription
from hansard.ports.model import Voice
from tests.security.endless import endless

OWN, NAMED = "sk-of-the-provider", "sk-of-the-ear"


@pytest.mark.parametrize("key_variable", [None, "EAR_KEY"])
async def test_a_key_goes_where_it_belongs(tmp_path: Path, key_variable: str | None) -> None:
    """At another address only the key that is named for it is sent."""
    environment = {"OPENAI_API_KEY": OWN, "EAR_KEY": NAMED}
    with endless() as server:
        url = f"http://127.0.0.1:{server.server_port}/error"
        given = Transcription(model="openai:ear", base_url=url, key_variable=key_variable)
        transcriber = open_transcriber(tmp_path, Settings(transcription=given), environment)
        assert transcriber is not None
        heard = await transcriber.hear(Voice(name="a.ogg", media_type="audio/ogg", data=b"x"))
        await transcriber.close()
        assert heard.failure
        sent = [value for each in server.headers for value in each.values()]
        assert sent
        assert not any(OWN in value for value in sent)
        assert any(NAMED in value for value in sent) == (key_variable is not None)
