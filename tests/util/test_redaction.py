from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from tests.factories import cells, experiment, experiment_file, launch_record
from torchscale.schema.launch.failure import FailureKind, RankFailure
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State
from torchscale.util import redaction
from torchscale.util.redaction import (
    note_secrets,
    redact,
    redact_arguments,
    redact_model,
    redact_text,
    removed_parts,
)
from torchscale.util.secret_names import REDACTED, is_secret_name

SECRET = "correct-horse-7"  # noqa: S105 - made up


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_noted", set())


@pytest.mark.parametrize(
    "name",
    [
        *(
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "WANDB_API_KEY",
            "NCCL_PASSWORD",
            "MY_AUTH",
            "DB_PWD",
            "SSH_PRIVATE",
        ),
        *(
            "DB_PASS",
            "GITHUB_PAT",
            "SSH_PASSPHRASE",
            "AWS_SESSION",
            "SLACK_WEBHOOK",
            "PGPASSWORD",
            "api_token",
            "apiKey",
        ),
        *(
            "client-secret",
            "AZURE_SAS",
            "AWS_ACCESS_KEY_ID",
            "dbpass",
            "X-Api-Key",
            "HTTP_AUTHORIZATION",
            "MY_CREDS",
        ),
    ],
)
def test_what_is_named_like_a_secret_is_redacted(name: str) -> None:
    assert redact(name, "abc") == REDACTED


@pytest.mark.parametrize(
    "name",
    [
        *(
            "NCCL_SOCKET_IFNAME",
            "CUDA_VISIBLE_DEVICES",
            "OMP_NUM_THREADS",
            "PWD",
            "OLDPWD",
            "GIT_AUTHOR_NAME",
        ),
        *(
            "TOKENIZERS_PARALLELISM",
            "tokenizer",
            "pad_token",
            "eos_token_id",
            "tokens_per_step",
            "num_key_value_heads",
        ),
        *(
            "max_tokens",
            "key_padding_mask",
            "bypass",
            "keyboard",
            "pin_memory",
            "compass",
            "XDG_SESSION_TYPE",
        ),
    ],
)
def test_what_is_not_stays(name: str) -> None:
    assert redact(name, "0,1") == "0,1"


@pytest.mark.parametrize("value", ["true", "0", "off", "", "auto"])
def test_a_switch_is_no_secret_whatever_its_name(value: str) -> None:
    assert redact("USE_AUTH", value) == value


def test_credentials_in_an_address_go() -> None:
    assert redact("NCCL_PROXY", "http://me:pw@host:3128") == f"http://{REDACTED}@host:3128"
    assert redact("NCCL_PROXY", "http://me:p@ss@host/a@b") == f"http://{REDACTED}@host/a@b"
    assert (
        redact("NCCL_PROXY", "http://a:b@one,http://c:d@two")
        == f"http://{REDACTED}@one,http://{REDACTED}@two"
    )


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--launch.env.HF_TOKEN=abc"], [f"--launch.env.HF_TOKEN={REDACTED}"]),
        (["--launch.env.HF_TOKEN", "abc", "next"], ["--launch.env.HF_TOKEN", REDACTED, "next"]),
        (["--launch.env={HF_TOKEN: abc, A: b}"], [f"--launch.env={REDACTED}"]),
        (["--launch.env", '{"API_KEY": "abc"}'], ["--launch.env", REDACTED]),
        (["sshpass", "-p", "hunter2"], ["sshpass", "-p", REDACTED]),
        (["docker", "run", "-p", "8080"], ["docker", "run", "-p", "8080"]),
        (["--launch={env: {DB_PASSWORD: abc}}"], [f"--launch={REDACTED}"]),
        (
            ["benchmark", "http://me:pw@host/c.yaml"],
            ["benchmark", f"http://{REDACTED}@host/c.yaml"],
        ),
        (
            ["benchmark", "c.yaml", "--gpu_counts=[1,2]"],
            ["benchmark", "c.yaml", "--gpu_counts=[1,2]"],
        ),
        (
            ["--launch.env={A: b}", "--dry-run", "c.yaml"],
            ["--launch.env={A: b}", "--dry-run", "c.yaml"],
        ),
    ],
)
def test_a_command_line(arguments: list[str], shown: list[str]) -> None:
    assert redact_arguments(arguments) == tuple(shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"cannot fetch https://bob:{SECRET}@hub/x", f"cannot fetch https://{REDACTED}@hub/x"),
        (f"s3://k:{SECRET}@b/x", f"s3://{REDACTED}@b/x"),
        (f"https://bob:a/{SECRET}@hub/x", f"https://{REDACTED}@hub/x"),
        (f"https://{SECRET}@hub/x", f"https://{REDACTED}@hub/x"),
        (f"https://hub/x?sig={SECRET}&v=1", f"https://hub/x?sig={REDACTED}&v=1"),
        (f"https://hub/x?v=1&access_token={SECRET}", f"https://hub/x?v=1&access_token={REDACTED}"),
        (f"https://b/x?X-Amz-Signature={SECRET}", f"https://b/x?X-Amz-Signature={REDACTED}"),
        (
            f"https://hooks.slack.com/services/T0/B0/{SECRET}",
            f"https://hooks.slack.com/services/{REDACTED}",
        ),
        (f"Server=db;Password={SECRET};Port=1", f"Server=db;Password={REDACTED};Port=1"),
        (f"--password={SECRET} --steps 3", f"--password={REDACTED} --steps 3"),
        (f"run --api-token {SECRET} now", f"run --api-token {REDACTED} now"),
        (f"{{'api_key': '{SECRET}', 'n': 3}}", f"{{'api_key': '{REDACTED}', 'n': 3}}"),
        (f'{{"token": "{SECRET}"}}', f'{{"token": "{REDACTED}"}}'),
        (f"Authorization: Basic {SECRET}", f"Authorization: {REDACTED}"),
        (f"sent 'Bearer {SECRET}'", f"sent 'Bearer {REDACTED}'"),
        ("x ghp_0123456789abcdefABCDEF0123456789abcd y", f"x {REDACTED} y"),
        ("hf_abcdefghijklmnopqrstuvwxyz", REDACTED),
        ("AKIAIOSFODNN7EXAMPLE", REDACTED),
        ("glpat-0123456789abcdefghij", REDACTED),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", REDACTED),
        (
            "a -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- b",
            f"a {REDACTED} b",
        ),
    ],
)
def test_secrets_in_a_text(text: str, shown: str) -> None:
    assert redact_text(text, ()) == shown
    assert redact_text(shown, ()) == shown


@pytest.mark.parametrize(
    "text",
    [
        "rank 0: KeyError: 'weights'",
        "unknown key: modles; did you mean models?",
        "Token indices sequence length is longer than 512",
        "forward pass: 12.5 ms, backward pass: 25.1 ms",
        "https://github.com/pytorch/pytorch/issues/1?page=2",
        "see http://localhost:8642/ and user@example.com",
        "AUTH=v2 --sig ok",
        "USE_AUTH=true AUTH: 12 api_key='none' --use-auth false --auth 7",
        "tokens_per_step=4096 num_tokens: 100000 tokenizer=gpt2 pad_token='[PAD]'",
        "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "torchscale benchmark c.yaml --gpu_counts=[1,2] --data.pin_memory=false",
        'File "net.py", line 3, in forward: expected key, got value',
    ],
)
def test_texts_without_secrets_stay(text: str) -> None:
    assert redact_text(text, ()) == text


def test_a_value_of_the_environment_is_found_wherever_it_turns_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_DB_PASS", "a b%c-9")
    monkeypatch.setenv("CACHE_URL", "redis://me:open-sesame@cache/0")
    assert redact_text("login with a b%c-9 failed") == f"login with {REDACTED} failed"
    assert redact_text("?q=a%20b%25c-9") == f"?q={REDACTED}"
    assert redact_text("refused open-sesame") == f"refused {REDACTED}"
    monkeypatch.delenv("MY_DB_PASS")
    assert redact_text("login with a b%c-9 failed") == "login with a b%c-9 failed"


@pytest.mark.parametrize("value", ["1", "true", "12345", "1234567", "/", "disabled", "abc"])
def test_values_that_turn_up_everywhere_are_not_looked_for(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", value)
    assert redact_text(f"x {value} y") == f"x {value} y"


@pytest.mark.parametrize(
    ("value", "is_hidden"),
    [("q1w2e", False), ("q1w2e3", True), ("12345678", True), ("disabled-7", True)],
)
def test_values_are_looked_for_from_the_length_on_that_secrets_have(
    value: str, is_hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", value)
    assert (redact_text(f"x {value} y") == f"x {REDACTED} y") is is_hidden


def test_a_secret_within_another_does_not_leave_the_rest_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "q1w2e3")
    monkeypatch.setenv("OTHER_API_KEY", "q1w2e3r4t5")
    assert redact_text("x q1w2e3r4t5 q1w2e3 y") == f"x {REDACTED} {REDACTED} y"


def test_a_path_that_is_there_is_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path))
    assert redact_text(f"wrote {tmp_path}/a.html") == f"wrote {tmp_path}/a.html"


def test_a_secret_of_several_lines_is_found_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TLS_PRIVATE", "0123456789abcdefghij\nklmnopqrstuvwxyz0123\n")
    assert redact_text("line 2: klmnopqrstuvwxyz0123") == f"line 2: {REDACTED}"
    monkeypatch.setenv("TLS_PRIVATE", "0123456789abcde\n0123456789ABCDEF\n")
    shown = redact_text("0123456789abcde or 0123456789ABCDEF")
    assert shown == f"0123456789abcde or {REDACTED}", "a short line may be any word"


def test_a_record_keeps_its_form_and_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cells()[0]
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    record = launch_record(
        cell,
        state=State.CRASHED,
        reason=f"rank 0: RuntimeError: {SECRET}",
        log_tail=f"x\nhttps://a:{SECRET}@h/",
    )
    shown = redact_model(record)
    assert shown.reason == f"rank 0: RuntimeError: {REDACTED}"
    assert SECRET not in shown.model_dump_json()
    assert shown.payload == record.payload
    assert LaunchRecord.model_validate_json(shown.model_dump_json()) == shown
    clean = launch_record(cell)
    assert redact_model(clean) is clean


def test_a_value_that_is_also_a_name_of_ours_breaks_no_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = cells()[0]
    for value in (cell.model, cell.id, "crashed", "training", "fp32-x"):
        monkeypatch.setenv("ODD_SECRET", value)
        shown = redact_model(launch_record(cell, state=State.CRASHED, reason="it crashed"))
        assert (shown.cell_id, shown.state, shown.payload.kind) == (
            cell.id,
            State.CRASHED,
            "training",
        )


def test_options_of_a_config_are_redacted_by_their_names() -> None:
    config = experiment(
        models=[{"name": "pkg:build", "api_token": SECRET, "tokens": 512}], gpu_counts=[1]
    )
    file = experiment_file(config, [])
    text = redact_model(file).model_dump_json()
    assert SECRET not in text
    assert '"tokens":512' in text


def test_every_text_of_a_file_is_looked_at() -> None:
    cell = cells()[0]
    config = experiment(models=[{"name": "pkg:build", "path": "a"}], launch={"env": {"A": "b"}})
    files: list[BaseModel] = [
        experiment_file(config, [PlannedCell(cell=cell, skip_reason="too large")]),
        launch_record(
            cell,
            command=("torchrun", "x"),
            failures=(
                RankFailure(rank=0, kind=FailureKind.ERROR, type="E", message="m", time=1.0),
            ),
            nodes=(
                LaunchNode(node_rank=0, hostname="h", address="10.0.0.1", first_rank=0, ranks=1),
            ),
        ),
    ]
    planted = 0
    for file in files:
        content = json.loads(file.model_dump_json())
        for path in list(leaves(content)):
            try:
                damaged = type(file).model_validate(changed(content, path, f"x {SECRET}"))
            except ValidationError:  # of a fixed list
                continue
            assert any(SECRET in text for text in redaction._texts_in([damaged])), path
            planted += 1
    assert planted >= 30


def leaves(content: object, path: tuple[str | int, ...] = ()) -> Iterator[list[str | int]]:
    """Paths to all texts."""
    if isinstance(content, str):
        yield list(path)
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from leaves(value, (*path, key))
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from leaves(value, (*path, place))


def changed(content: Any, path: list[str | int], value: object) -> Any:
    whole = copy.deepcopy(content)
    parent = whole
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return whole


def test_no_field_of_ours_is_named_like_a_secret() -> None:
    """Its values would be redacted from every record."""

    def models(base: type[BaseModel]) -> list[type[BaseModel]]:
        return [found for child in base.__subclasses__() for found in (child, *models(child))]

    named = {
        (model.__name__, name)
        for model in models(BaseModel)
        for name in model.model_fields
        if is_secret_name(name)
    }
    ours = {
        pair
        for pair in named
        if any(
            pair[0] == model.__name__
            for model in models(BaseModel)
            if model.__module__.startswith("torchscale.")
        )
    }
    assert ours == set()


def test_noted_values_are_looked_for_too() -> None:
    note_secrets({"OTHER_PASS": "long-enough", "N": "not-a-secret"})
    assert redact_text("long-enough not-a-secret") == f"{REDACTED} not-a-secret"


def test_what_was_taken_out_of_a_text() -> None:
    shown = redact_text("s3://key:word@b/x?sig=abcdef", ())
    assert set(removed_parts("s3://key:word@b/x?sig=abcdef", shown)) == {
        "key:word",
        "word",
        "abcdef",
        "",
    }


def test_secrets_within_json_in_the_environment_are_looked_for_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key file of a cloud account is often passed as one variable. Libraries write its key
    into messages, without the rest of the file."""
    account = {"type": "service_account", "private_key": "c0rrect-h0rse", "retries": 3}
    monkeypatch.setenv("CLOUD_CREDENTIALS", f"  {json.dumps(account)}")
    assert redact_text("service_account: refused c0rrect-h0rse") == (
        f"service_account: refused {REDACTED}"
    )


@pytest.mark.parametrize("value", ["{not json at all", "[1]", '{"retries": ["in-a-list"]}', "{}"])
def test_what_only_looks_like_json_is_a_value_like_others(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CLOUD_CREDENTIALS", value)
    assert redact_text("long text: in-a-list") == "long text: in-a-list"


def test_only_a_command_is_read_as_options_and_their_values() -> None:
    """What follows ``-p`` in a list of other texts is no password."""
    data = {"command": ["sshpass", "-p", SECRET], "notes": ["see", "-p", "steps"]}
    assert redaction._redact_data(data, ()) == {
        "command": ["sshpass", "-p", REDACTED],
        "notes": ["see", "-p", "steps"],
    }


LISTED = "Command '['train.py', '--steps', '300', '--token', '{}', '--lr', '0.1']' returned 1"


@pytest.mark.parametrize(
    "text",
    [
        LISTED,
        'argv: ["train.py", "--api-key", "{}", "--steps", "3"]',
        'args=[\\"--api-key\\", \\"{}\\", \\"--steps\\", \\"3\\"]',
        '{{\\"api_key\\": \\"{}\\", \\"n\\": 3}}',
        '{{\\\\\\"password\\\\\\": \\\\\\"{}\\\\\\"}}',
        "https://hub/x#access_token={}",
        "Server=db;Uid=sa;Pwd={};Port=1",
        "pwd={} user=sa",
        "db_pw={}",
        "run --pw {} now",
        "curl -sS -u bob:{} https://hub/x",
        "curl --user 'bob:{}' https://hub/x",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n{}\n-----END PGP PRIVATE KEY BLOCK-----",
        "git+https://oauth2:{}@hub/a.git",
        "postgresql+psycopg2://bob:{}@db:5432/x",
        "jdbc:postgresql://h/db?user=u&password={}",
        "AccountName=a;AccountKey={}==;EndpointSuffix=core",
        "--header 'Authorization: Bearer {}'",
        "Proxy-Authorization: Basic {}",
        "Namespace(token='{}', steps=3)",
        "connect(user='bob', password=\"{}\")",
        "env API_KEY={} python train.py",
    ],
)
def test_secrets_in_what_programs_print(text: str) -> None:
    shown = redact_text(text.format(SECRET), ())
    assert SECRET not in shown
    assert REDACTED in shown
    assert redact_text(shown, ()) == shown


def test_only_the_secret_of_a_list_of_arguments_is_taken_out() -> None:
    assert redact_text(LISTED.format(SECRET), ()) == LISTED.format(REDACTED)


@pytest.mark.parametrize(
    "token",
    [
        "wandb_v1_0123456789abcdefABCD",
        "dckr_pat_0123456789abcdefABCD",
        "gsk_0123456789abcdefABCDEFGH",
        "tgp_v1_0123456789abcdefABCD",
        "r8_0123456789abcdefABCDEFGHIJ",
        "dapi0123456789abcdef0123456789abcdef",
        "ATATT3xFfGF0123456789abcdef",
        "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQ",
        "sk-ant-api03-0123456789abcdef",
        "ghs_0123456789abcdefABCDEF0123456789abcd",
        "AIzaSyA0123456789abcdefghijklmnopqrstuvw",
    ],
)
def test_tokens_of_services_are_known_by_their_form(token: str) -> None:
    assert redact_text(f"refused {token} by the hub", ()) == f"refused {REDACTED} by the hub"


def test_the_key_of_a_tracker_on_its_command_line() -> None:
    assert redact_text(f"wandb login {'0a' * 20}", ()) == f"wandb login {REDACTED}"
    assert redact_text("wandb login first, then start", ()) == "wandb login first, then start"


@pytest.mark.parametrize(
    "text",
    [
        *("time_per_token=12.5ms", "loss_per_token: 2.345", "ms_per_token: 12.31", "per_token=7"),
        *("token_budget=4096", "--token-budget 4096", "token_dropout=0.15", "token_dim=1024"),
        *("first_token_latency=12.3", "time_to_first_token: 0.123", "token_throughput=4567.8"),
        *("forward_pass=12.5", "backward_pass: 25.12 ms", "first_pass=1234", "pass_rate=0.98"),
        *("pass_at_1=0.345", "sig=0.5", "sort_key: loss", "image_key=jpg", "label_key: cls"),
        *("NCCL_IB_PKEY=32767", "pkey=7fff", "monkey=abc", "turkey: abc", "secretary=bob"),
        *("auth_type=basic", "--key-size 2048", "attn.key.weight: 1024", "k.bias=12345"),
        *("--token-dropout 0.15", "pwd=/home/x", "PWD=/x", "'--tokens', '4096', '--key-dim', '12'"),
        *("['--steps', '300', '--max-tokens', '4096']", "docker run -u 1000:1000 image"),
        *("curl -sSL https://x.y/install.sh | sh", "key_loss=-1.5e-3", "pass=2.5GiB"),
    ],
)
def test_figures_and_ordinary_words_stay(text: str) -> None:
    """``time_per_token=12.5ms`` was taken for a token."""
    assert redact_text(text, ()) == text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRACKER_CONFIG", json.dumps({"hub": {"api_key": "c0rrect-h0rse", "n": 3}})),
        ("TRACKER_CONFIG", json.dumps([{"auth": {"passwords": ["c0rrect-h0rse"]}}])),
        ("HUB_CREDENTIALS", json.dumps({"a": [{"b": {"token": "c0rrect-h0rse"}}]})),
        ("TRAIN_OPTS", "--steps 3 --token c0rrect-h0rse --lr 0.1"),
        ("DSN", "Server=db;Uid=sa;Pwd=c0rrect-h0rse;Port=1"),
        ("CACHE", "https://hub/x?sig=c0rrect-h0rse&v=1"),
        ("NCCL_NET_CONFIG", "auth_key=c0rrect-h0rse,level=3"),
    ],
)
def test_secrets_within_a_variable_are_looked_for_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert redact_text("refused c0rrect-h0rse at step 3") == f"refused {REDACTED} at step 3"


@pytest.mark.parametrize("value", ["sort=1 key=length", "token=sentencepiece", "key=12345678"])
def test_a_plain_word_within_a_variable_is_looked_for_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SORT_OPTS", value)
    text = "length of sentencepiece: 12345678"
    assert redact_text(text) == text


def test_secrets_of_a_command_line_are_looked_for_alone() -> None:
    """The program prints them without their names."""
    redaction.note_arguments(
        ["torchrun", "train.py", "--token", SECRET, "--db=x://u:0ther-one@h", "--lr", "0.1"]
    )
    shown = redact_text(f"login with {SECRET} and 0ther-one failed, lr 0.1")
    assert shown == f"login with {REDACTED} and {REDACTED} failed, lr 0.1"


@pytest.mark.parametrize(
    "arguments",
    [
        ["train.py", "--moe-token-dispatcher-type", "alltoall"],
        ["srun", "-p", "training", "train.py"],
        ["train.py", "--run-token", "training", "--session=alltoall"],
        ["train.py", "-o", "mixer_token=alltoall"],
    ],
)
def test_a_word_of_a_command_line_is_looked_for_nowhere_else(arguments: list[str]) -> None:
    """``alltoall`` was erased from each error of a script that is told how to send tokens."""
    redaction.note_arguments(arguments)
    text = "Rank 1 of training waits in alltoall_base"
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "arguments",
    [
        ["train.py", "--password", "correcthorse"],
        ["train.py", "--db.secret=correcthorse"],
        ["train.py", "--db=x://bob:correcthorse@h"],
        ["sshpass", "-p", "correcthorse", "ssh", "h"],
        ["bash", "-c", "train.py --password correcthorse --lr 0.1"],
    ],
)
def test_a_password_of_a_command_line_may_be_a_word(arguments: list[str]) -> None:
    redaction.note_arguments(arguments)
    assert redact_text("refused correcthorse") == f"refused {REDACTED}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("token_mixer", "attention"), ("token_mixer", "mlp2"), ("token_pooling", "mean")),
        *(("input_key", "image"), ("key_frames", "every10"), ("class_token", "learned")),
        *(("session", "baseline"), ("cookie_policy", "lax"), ("public_key", "/x/key")),
    ],
)
def test_a_word_under_a_name_of_what_machines_make_up_stays(name: str, value: str) -> None:
    """Cells with ``token_mixer: attention`` and ``pooling`` could not be told apart."""
    assert redact(name, value) == value


@pytest.mark.parametrize(
    "name", ["session", "wandb_key", "token_notes", "cookie", "private", "TOKEN_DROPBOX"]
)
@pytest.mark.parametrize("value", ["0a1b2c3d4e5f", "kJhGfDsAqWeRtYuI", "a" * 25])
def test_what_looks_made_up_is_hidden_under_such_a_name(name: str, value: str) -> None:
    assert redact(name, value) == REDACTED


@pytest.mark.parametrize("value", ["a'b\"c\\dXYZ", "pässwörd1", "c0rrect-h0rse"])
def test_a_value_is_found_in_json_and_base64(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MY_TOKEN", value)
    assert redact_text(json.dumps(value)) == f'"{REDACTED}"'
    encoded = base64.b64encode(value.encode()).decode()
    assert redact_text(encoded).rstrip("=") == REDACTED


@pytest.mark.parametrize(
    "text",
    [
        "x" * 300_000 + " token",
        "_" * 300_000 + "token=",
        "token" + "." * 300_000,
        "1." * 150_000 + " token=",
        "per_token=" + "1" * 300_000 + ".",
        "token " + "\\" * 300_000,
        "'--token'," * 20_000,
        "curl -u " * 20_000,
        "wandb login --x " * 10_000,
        "://a:" * 20_000,
        "://a" * 20_000,
    ],
)
@pytest.mark.timeout(30)
def test_a_line_without_end_takes_no_time_without_end(text: str) -> None:
    """A progress bar of 300,000 characters took minutes."""
    assert redact_text(text, ()).startswith(text[:3])


def test_the_host_of_a_webhook_stays() -> None:
    shown = redact_text(f"https://acme.webhook.office.com/hook/{SECRET}", ())
    assert shown == f"https://acme.webhook.office.com/{REDACTED}"


class _Node(BaseModel):
    size: float
    next: _Node | None = None


class _Named(_Node):
    name: str = ""


class _Open(_Node):
    model_config = ConfigDict(extra="allow")


Number = Annotated[float, Field(ge=0)]
TEXT_TYPES = (
    *(str, str | None, float | str, Any, object, Path, State, list[str], dict[str, float]),
    *(tuple[str, ...], tuple[float, tuple[int, str]], Annotated[str | None, Field()]),
    *(_Named, tuple[_Node | _Named, ...], _Open | None),
)
NUMBER_TYPES = (
    *(int, bool, float | None, Number, Number | None, Annotated[int | None, Field(ge=0)]),
    *(tuple[float, ...], tuple[tuple[Number | None, ...], ...] | None, tuple[int, float]),
    *(_Node, _Node | None, tuple[_Node, ...]),
)


@pytest.mark.parametrize(
    ("kind", "is_text"),
    [*((kind, True) for kind in TEXT_TYPES), *((kind, False) for kind in NUMBER_TYPES)],
)
def test_only_fields_of_numbers_are_not_looked_at(kind: Any, is_text: bool) -> None:
    model = create_model("_Made", part=(kind, ...))
    assert redaction._text_fields(model).names == ("part",) * is_text


def test_a_field_that_the_model_does_not_know_is_looked_at() -> None:
    note_secrets({"MY_TOKEN": SECRET})
    shown = redact_model(_Open.model_validate({"size": 1, "said": SECRET}))
    assert json.loads(shown.model_dump_json())["said"] == REDACTED


def test_a_text_under_the_name_of_a_secret_is_hidden_in_a_model_too() -> None:
    model = create_model("_Made", db_password=(str | None, None), count=(int, 3))
    shown = redact_model(model.model_validate({"db_password": "abcd"}))
    assert json.loads(shown.model_dump_json()) == {"db_password": REDACTED, "count": 3}


class _Place(BaseModel):
    said: str = ""
    path: Path = Path("/data")


@pytest.mark.parametrize(
    "place", [_Place(said=f"it wrote {SECRET} once"), _Place(path=Path("/data") / SECRET)]
)
def test_a_known_secret_alone_makes_a_record_be_redacted(place: _Place) -> None:
    """In a text that looks like any other, and in a path, which is no text before it is written."""
    note_secrets({"MY_TOKEN": SECRET})
    assert SECRET not in redact_model(place).model_dump_json()


@pytest.mark.parametrize(
    ("value", "shown"), [("1234", REDACTED), ("123", "123"), ("123456", REDACTED)]
)
def test_a_number_under_the_name_of_a_secret_is_one_from_four_digits(
    value: str, shown: str
) -> None:
    """A PIN has four; a shorter one is a switch or a count."""
    assert redact("DOOR_PASSWORD", value) == shown
