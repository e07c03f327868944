"""What the settings say of models reaches the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.app.config import load_config
from hansard.app.wiring import sees_pictures

CONFIG = 'picture_models = ["openai:sees", "openai:both"]\ntext_models = ["openai:reads", "openai:both"]\n'


@pytest.mark.parametrize(
    ("model", "sees"),
    [("openai:sees", True), ("openai:reads", False), ("openai:both", False), ("openai:other", None)],
)
def test_the_settings_say_which_models_take_pictures(home: Path, model: str, *, sees: bool | None) -> None:
    """They overrule what is guessed from the name, which decides only where they are silent; text goes first."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG, encoding="utf-8")
    assert sees_pictures(load_config(home, {}, {}).settings, model) is sees
