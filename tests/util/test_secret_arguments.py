"""Words of a command line that stand where programs take a secret."""

from __future__ import annotations

import shlex

import pytest

from torchscale.util.redaction import redact_arguments, redact_text

SECRET = "hunter-2b"  # noqa: S105 - made up


@pytest.mark.parametrize(
    "line",
    [
        "train.py --set api_key {}",
        "train.py -s api_key {}",
        "train.py -s key {}",
        "train.py --set=api_key {}",
        "train.py --set hub.password {} --steps 3",
        "train.py --set api_key={}",
        "train.py -o a=1,password={}",
        "train.py +hub.api_key={} ++model/token={}",
        "java -Dpw={} -jar x",
        "login bob {}",
        "./login.sh bob {} --steps 3",
        "docker login --verbose bob {}",
        "cli login --server hub bob {}",
        "wandb login 0a0a0a0a0a{}",
        "redis-cli config set requirepass {}",
        "curl -u bob:{} https://hub/x",
        "curl -ubob:{} https://hub/x",
        "curl --user=bob:{} https://hub/x",
        "wget --proxy-user bob:{}",
        "http --auth bob {}",
        "train.py --header 'Authorization: {}'",
        "train.py --header 'Authorization: Token abc {}'",
        "train.py -H 'X-Private: a {}'",
        "train.py --header Authorization: Bearer {}",
        "train.py -c 'password {}'",
        "sshpass -p{} ssh host",
        "mysql -h db -p{}",
        "docker login -u me -p {} hub",
        "bash -c 'docker login -u me -p {}'",
        "bash -c 'mysql -u root -p{}'",
        "mongo -u root -p {}",
        "rsync bob:{}@host:/x .",
        "torchscale bisect env:API_TOKEN={} env:API_TOKEN={}x -- train.py",
        "torchscale bisect env:A=1,API_TOKEN='{} b' env: -- train.py",
        "pip install --index-url https://bob:{}@hub/simple",
    ],
)
def test_a_secret_is_hidden_by_its_place(line: str) -> None:
    shown = redact_arguments(shlex.split(line.replace("{}", SECRET)))
    assert SECRET not in " ".join(shown)
    assert "<redacted>" in " ".join(shown)
    assert redact_arguments(shown) == shown


@pytest.mark.parametrize(
    "line",
    [
        "train.py --set batch_size 8",
        "train.py --set tokens 1000",
        "train.py --set tokens 10k --tokens 1e6 --max-tokens 4k",
        "train.py --set tokenizer gpt2 -s steps 300",
        "docker run -u 1000:1000 -p 8080 image",
        "gh auth login --hostname github.com",
        "torchrun --nproc-per-node 4 train_token_classifier.py data --lr 0.1",
        "python -u train.py --columns text,label",
        "train.py --token-file run/token --ssl-keyfile key.pem --key-path x",
        "train.py --user-agent a:b --prompt 'The token: is a piece of text'",
        "docker pull repo:tag@sha256:0123abcd",
        "train.py --header 'Accept: text/html'",
        "python login.py",
        "ssh host login",
        "kubectl get secret torchscale",
        "train.py --metric loss --sort-key name",
        "srun -p gpu train.py",
        "sbatch --wrap x -p h100",
        "mkdir -p /x/y",
        "python -m pytest -p no:cacheprovider",
        "docker run -p 8080:80 image",
        "train.py --moe-token-dispatcher-type alltoall --token-mixer attention",
        "train.py --input_key image --wds-key json --session baseline",
    ],
)
def test_other_words_stay(line: str) -> None:
    words = shlex.split(line)
    assert redact_arguments(words) == tuple(words)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"bisect env:API_TOKEN={SECRET} x", "bisect env:API_TOKEN=<redacted> x"),
        (f"FLAGS=token={SECRET} x", "FLAGS=token=<redacted> x"),
        (f"--format PASSWORD={SECRET}: expected", "--format PASSWORD=<redacted>: expected"),
        ("equally many tokens: pack sequences", "equally many tokens: pack sequences"),
        ("--token-file token: no such file", "--token-file token: no such file"),
        ("/run/token: mode 0666", "/run/token: mode 0666"),
        (f"token: {SECRET}", "token: <redacted>"),
    ],
)
def test_a_name_within_a_text(text: str, shown: str) -> None:
    assert redact_text(text, ()) == shown


@pytest.mark.timeout(30)
@pytest.mark.parametrize("text", ["a=" * 150_000 + "token", "token:" * 60_000, "login " * 50_000])
def test_a_long_line_takes_no_time_without_end(text: str) -> None:
    assert redact_text(text, ()).startswith(text[:3])
    assert redact_arguments(text.split()[:20_000])
