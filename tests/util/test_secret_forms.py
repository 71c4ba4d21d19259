"""Secrets of a text by their form or the name before them, and texts that only look alike."""

from __future__ import annotations

import pytest

from torchscale.util import secret_forms
from torchscale.util.redaction import redact_text
from torchscale.util.secret_forms import cut_forms

SECRET = "s3cr3tV4lue9XyZ"  # noqa: S105 - made up


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "DB_PASSWORD", "value": "{}"}',
        '{\\"name\\":\\"DB_PASSWORD\\",\\"value\\":\\"{}\\"}',
        "env:\n  - name: DB_PASSWORD\n    value: {}\n  - name: A",
        '{"username":"x","key":"{}{}"}',
        "password: |\n  {}\n  {}\nsteps: 3",
        "hub:\n  api_key: >-\n    {}\n  steps: 3",
        "machine api.hub.ai\n  login user\n  password {}",
        "machine api.hub.ai login user password {}",
        "login user password {}",
        'bash -c "docker login -u me -p {} hub"',
        "mysql -u root -p{} db",
        "sshpass -p {} ssh host",
        "Settings(password=SecretStr('{}'))",
        '{"password": "ab\\"{}"}',
        '{\\"password\\": \\"ab\\\\\\"{}\\"}',
        "connect(password='it\\'s{}', user='u')",
        "('Authorization', 'Basic {}')",
        "(b'authorization', b'Bearer {}')",
        "Invalid API key provided: {}",
        "ValueError: invalid token {}",
        "Incorrect password '{}' for user",
        "password=abc;{}",
        "password=abc,{}",
        "password=ab'{}",
        "password=ab({})",
        "pw_token: a1{}(b",
        "password={{}}",
        "export PASSWORD=ab\\&{}",
    ],
)
def test_a_secret_is_found_by_its_form(text: str) -> None:
    shown = cut_forms(text.replace("{}", SECRET))
    assert SECRET not in shown
    assert "<redacted>" in shown
    assert cut_forms(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"password: |\n  {SECRET}\nsteps: 3", "password: |\n  <redacted>\nsteps: 3"),
        (f"password=a,{SECRET},user=bob", "password=<redacted>,user=bob"),
        (f"f(db_password=a,{SECRET}), next", "f(db_password=<redacted>), next"),
        (f'{{"password": "a\\"{SECRET}", "n": "b"}}', '{"password": "<redacted>", "n": "b"}'),
        (f"name: DB_PASS\n  value: {SECRET}\n", "name: DB_PASS\n  value: <redacted>\n"),
        (f"docker login -p {SECRET} hub -p 1", "docker login -p <redacted> hub -p 1"),
    ],
)
def test_what_is_around_it_stays(text: str, shown: str) -> None:
    assert cut_forms(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "token_mixer.py:1234",
        "src/secrets.py:1000 `load`",
        "tests/test_token.py::test_x PASSED",
        "token_utils.py: line 3",
        "    key = self.key_proj(x)",
        "    token = self.embed(ids)",
        "    tokens = tokenizer(text)",
        "    token = self.tokens[index]",
        "    auth = get_auth()",
        "    api_key = os.environ['HUB']",
        "    token = self.conv2d(x)",
        "    password = getpass()",
        "y = sorted(xs, key=len)",
        "max(values, key=lambda v: v)",
        "sorted(files, key=os.path.getmtime)",
        "token = tokenizer.encode",
        "TypeError: forward(token: Tensor, mask: Tensor) missing",
        "def f(key: str, token: int) -> None",
        "def connect(password: str, api_key: str | None = None) -> None",
        "token: missing",
        "cache_key=abcdef session=baseline sig=SIGKILL",
        "sequence_key=input_ids input_key=image",
        "token_dispatcher_type=alltoall token_drop_policy=probs",
        "train.py --moe-token-dispatcher-type alltoall --token-mixer attention",
        "RuntimeError: alltoall of probs failed, call alltoall_base",
        "mkdir -p /x/y && docker run -p 8080:80 image && srun -p gpu x",
        "- name: steps\n  value: 300",
        '{"name": "token_mixer", "value": "attention"}',
        "description: |\n  It reads tokens.\n",
        "login with password authentication",
        "invalid token in line 3",
        "['Authorization', 'Accept']",
        "step key: 0123abcd",
    ],
)
def test_words_and_code_stay(text: str) -> None:
    assert redact_text(text, ()) == text


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    [
        "password=a," * 30_000,
        "password=" + "a(" * 150_000,
        'name: "token' * 30_000,
        "mysql -h " * 30_000,
        "login a password " * 20_000,
        'password: "' + '\\"' * 150_000,
        "  token: |\n" * 30_000,
        "username: a, key" * 20_000,
        "api key " * 40_000,
        "token=" + "Ab" * 150_000,
    ],
)
def test_a_long_text_takes_no_time_without_end(text: str) -> None:
    assert cut_forms(text).startswith(text[:4])


def test_a_text_is_searched_only_for_what_may_be_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of megabytes are read through, most lines of which can hold no secret."""
    searched: list[str] = []

    def cut(pattern: str, text: str) -> str:
        searched.append(pattern)
        return text

    monkeypatch.setattr(secret_forms, "cut", cut)
    assert cut_forms("step 3 loss 0.2") == "step 3 loss 0.2"
    assert searched == []
    cut_forms("session")
    frequent = len(searched)
    cut_forms("a LOGIN by sshpass")
    assert (frequent > 0, len(searched)) == (True, 2 * frequent + 2)
