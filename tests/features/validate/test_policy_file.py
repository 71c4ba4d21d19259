"""A policy from a file of YAML: strict, with file and line of every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.errors import ConfigError
from torchscale.features.validate.policy_file import read_policy
from torchscale.schema.node.policy import Policy, Subject


def written(directory: Path, text: str) -> Path:
    path = directory / "policy.yaml"
    path.write_text(text)
    return path


def test_a_policy_has_the_default_of_what_it_leaves_out(tmp_path: Path) -> None:
    text = "looked_at: [compute, kernel log]\nburn_in_minutes: 30\nrounds: 10\n"
    assert read_policy(written(tmp_path, text)) == Policy(
        looked_at=(Subject.COMPUTE, Subject.KERNEL_LOG), burn_in_minutes=30, rounds=10
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rounds: 2", ":1: rounds: 2; expected a whole number of at least 3"),
        ("rounds: 5.5", ":1: rounds: 5.5; expected a whole number"),
        ("a: 1\nround: 5", ":2: round: unknown key; did you mean 'rounds'?"),
        ("looked_at: [disk, memori]", ":1: looked_at[1]: 'memori'; expected a list of: compute"),
        ("looked_at: disk", ":1: looked_at: 'disk'; expected a list of"),
        ("compared: 1", ":1: compared: 1; expected true or false"),
        ("flap_percent: '25'", ":1: flap_percent: '25'; expected a number from 0 to below 100"),
        ("return_percent: 100", ":1: return_percent: 100; expected a number"),
        ("rounds: 5\nrounds: 6", ":2: rounds: is listed twice"),
        ("burn_in_minutes: .inf", "burn_in_minutes"),
        ("", "holds no policy; expected keys such as looked_at"),
        ("- rounds", "holds no policy"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_was_expected(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        read_policy(written(tmp_path, text))
    assert said in error.value.message
