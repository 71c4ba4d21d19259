"""Configs of all kinds: an experiment, or a message; nothing is run and nothing takes long."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.campaign import WHOLE
from torchscale.config.dump import to_yaml
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment
from torchscale.errors import ConfigError, UsageError

CORPUS = sorted((Path(__file__).parents[1] / "corpus" / "config").iterdir())
SOUND = to_yaml(Experiment.model_validate({"models": "tiny-resnet", "batch_sizes": [8]}))
PIECES = [
    "&a ",
    "*a",
    "!!int ",
    "[",
    "]",
    "{",
    "}",
    ": ",
    "- ",
    "\n",
    "  ",
    "\t",
    "'",
    '"',
    "|",
    ">",
    "%",
    "#",
    "\x00",
    "\x1b[",
]
PIECES += [
    "\u202e",
    "\ud7ff",
    "-1",
    "0",
    "1e999",
    ".inf",
    "99999999999999999999",
    "null",
    "~",
    "..",
    "<<: ",
    "? ",
    "---\n",
    "\x85",
]


def check(path: Path) -> None:
    try:
        experiment = load_experiment(path)
    except (ConfigError, UsageError) as error:
        assert error.message
        assert all(line.isprintable() for line in error.message.splitlines()), error.message
    else:
        assert isinstance(experiment, Experiment)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_configs_that_once_were_hostile(path: Path) -> None:
    with pytest.raises(ConfigError):
        load_experiment(path)


@settings(max_examples=2000 if WHOLE else 60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(SOUND)),
            st.integers(0, 30),
            st.sampled_from(PIECES) | st.text(max_size=8),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_config_with_pieces_cut_out_and_put_in(
    tmp_path: Path, changes: list[tuple[int, int, str]]
) -> None:
    text = SOUND
    for start, length, piece in changes:
        text = text[:start] + piece + text[start + length :]
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    check(path)


@settings(max_examples=2000 if WHOLE else 60)
@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from(PIECES), max_size=60).map(lambda parts: "".join(parts).encode())
)
def test_any_bytes_as_a_config(tmp_path: Path, content: bytes) -> None:
    for name in ("config.yaml", "config.json"):
        path = tmp_path / name
        path.write_bytes(content)
        check(path)
