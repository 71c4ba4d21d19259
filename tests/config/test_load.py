from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.campaign import WHOLE
from torchscale.config.arguments import load_from_arguments
from torchscale.config.dump import to_json, to_yaml
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment, read_document
from torchscale.errors import ConfigError, TorchscaleError, UsageError

KNOWN = """\
experiment_name: "resnet50_scaling_test"
models: ["resnet50", "bert-large"]
batch_sizes: [64, 128, 256]     # per GPU
gpu_counts: [1, 2, 4, 8]        # or: auto
profiling: {enabled: true, tool: "nsys", trigger: "sync_stall_detection"}
"""
EDITOR_SCHEMA = Experiment.model_json_schema()
SMALL = "models: gpt2\nbatch_sizes: 4\n"


def load(tmp_path: Path, text: str, *overrides: str, name: str = "config.yaml") -> Experiment:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return load_experiment(tmp_path / name, overrides, known_options=["--dry-run", "--output-dir"])


def complaint(tmp_path: Path, text: str, *overrides: str, name: str = "config.yaml") -> str:
    """The error's text, with the directory taken out."""
    with pytest.raises((ConfigError, UsageError)) as caught:
        load(tmp_path, text, *overrides, name=name)
    return caught.value.message.replace(f"{tmp_path}/", "")


def test_the_known_keys_are_taken_as_they_are(tmp_path: Path) -> None:
    experiment = load(tmp_path, KNOWN)
    assert [model.name for model in experiment.models] == ["resnet50", "bert-large"]
    assert experiment.batch_sizes == (64, 128, 256)
    assert experiment.gpu_counts == (1, 2, 4, 8)
    assert experiment.profiling.trigger == "sync_stall_detection"


def test_yaml_is_json_too(tmp_path: Path) -> None:
    content = json.dumps(yaml.safe_load(KNOWN), indent="\t")
    assert load(tmp_path, content, name="config.json") == load(tmp_path, KNOWN)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("trainin: {}", "config.yaml:3: trainin: unknown key; did you mean 'training'?"),
        (
            "data: {lengths: {median: 300}}",
            "config.yaml:3: data.lengths: expected median and sigma of a lognormal distribution, or a "
            "file",
        ),
        (
            "data: {lengths: {median: 300, sigma: 1, file: lengths.txt}}",
            "config.yaml:3: data.lengths: expected median and sigma of a lognormal distribution, or a "
            "file",
        ),
        (
            "training: {precison: fp32}",
            "config.yaml:3: training.precison: unknown key; did you mean 'precision'?",
        ),
        (
            "batch_sizes: 8",
            "config.yaml:3: batch_sizes: is listed twice (first in line 2); keep one",
        ),
        ("seed: !!python/name:os.system ''", "tags are not supported"),
        ("training: {seed: &a 3}", "anchors and aliases"),
        (
            "gpu_counts: 0",
            "config.yaml:3: gpu_counts: expected a number of at least 1 or 'auto', got 0",
        ),
        (
            "gpu_counts: [1, 0]",
            "config.yaml:3: gpu_counts[1]: expected a number of at least 1, got 0",
        ),
        ("gpu_counts: 1e3", "got '1e3'; 1e3 is text in YAML: write 1000"),
        ("training: {learning_rate: 1e-4}", "1e-4 is text in YAML: write 0.0001 or 1.0e-4"),
        ("gpu_counts: [2, 2]", "gpu_counts: 2 is listed twice; list each value of an axis once"),
        (
            "benchmark: {measure_seconds: 10s}",
            "expected a number, got '10s'; a time is a number of seconds: 10",
        ),
        ("benchmark: {measure_seconds: 2m}", "a time is a number of seconds: 120"),
        ("training: {precision: bfloat16}", "got 'bfloat16'; write 'bf16'"),
        ("training: {precision: [half]}", "got 'half'; write 'fp16'"),
        (
            "model: resnet50",
            "model: holds the settings of all models; models are named by 'models: [resnet50]'",
        ),
        ("gpu_counts: []", "an axis needs at least one value"),
        ("gpu_counts: true", "expected a whole number or 'auto', got true"),
        ("gpu_counts: 010", "expected a whole number or 'auto', got '010'"),
        ("experiment_name: ../x", "must be a plain file name"),
        ("experiment_name: a/b", "must be a plain file name"),
        ("training: {cudnn_benchmark: yes}", "expected true or false, got 'yes'"),
        (
            "parallel: {strategy: [fsdpp]}",
            "parallel.strategy[0]: expected 'none', 'ddp', 'zero1', 'fsdp'",
        ),
        (
            "parallel: {strategy: {name: hybrid, tensr: 2}}",
            "strategy.tensr: unknown key; did you mean 'tensor'?",
        ),
        (
            "parallel: {strategy: [{data: 2}]}",
            "parallel.strategy[0]: the key 'name' is required: one of none, ddp, zero1",
        ),
        ("parallel: {strategy: [ddp, {name: ddp, bucket_cap_mb: 25}]}", "ddp is listed twice"),
        (
            "parallel: {strategy: {name: pipeline, schedule: x}}",
            "expected 'gpipe', '1f1b' or 'interleaved', got 'x'",
        ),
        ("model: {compile: [true, default]}", "true and 'default' are the same mode; keep one"),
        (
            "training: {precision: bf61}",
            "expected 'fp32', 'tf32', 'fp16', 'bf16', 'fp8', 'mxfp8' or 'nvfp4', got 'bf61'; did you mean 'bf16'?",
        ),
        ("training: 3", "config.yaml:3: training: expected a mapping of keys to values, got 3"),
        ("training: {learning_rate: .inf}", "got '.inf'"),
        (
            "benchmark: {measure_steps: 3, measure_seconds: 4}",
            "measure_steps and measure_seconds cannot be combined",
        ),
        (
            "training: {epochs: 1}\nbenchmark: {measure_steps: 3}",
            "config.yaml:3: training.epochs: cannot be combined with benchmark.",
        ),
        (
            "benchmark: {preset: [quick]}",
            "benchmark.preset: expected 'standard' or 'quick', got ['quick']",
        ),
        ("training: {seed: 1_0e3}", "training.seed: expected a whole number, got '1_0e3'"),
        ("training: {seed: 1e300}", "training.seed: expected a whole number, got '1e300'"),
        (
            f"training: {{seed: {'9' * 30}}}",
            "config.yaml:3: 999999999999999999999999… is too large a number",
        ),
        ("training:", "training: expected a mapping of keys to values, got null; remove the key"),
        ("seed: 3", "config.yaml:3: seed: unknown key; did you mean 'training.seed'?"),
        (
            "benchmark: {timeout_seconds: 3}",
            "timeout_seconds: unknown key; did you mean 'launch.timeout_seconds'?",
        ),
        ("Training: {}", "config.yaml:3: Training: unknown key; did you mean 'training'?"),
        ("gpu_counts: 1,2", "got '1,2'; write a list as [1, 2]"),
        ("experiment_name: 2024", "expected text, got 2024; quote it to make it text: '2024'"),
        ('experiment_name: "x\\n"', "experiment_name: must be a plain file name"),
        ("experiment_name: 'x '", "experiment_name: must be a plain file name"),
        (
            'experiment_name: "\\UFFFFFFFF"',
            "config.yaml:3: not valid YAML: an escape or a number out of range",
        ),
        (
            "experiment_name: \x1b[31m",
            "config.yaml:3: not valid YAML: character U+001B is not allowed",
        ),
        (
            'launch: {env: {A: "\\ud800"}}',
            "config.yaml:3: launch.env.A: contains an unpaired surrogate",
        ),
        ('launch: {env: {"A\\n": x}}', "'A\\n' is not a valid environment variable"),
        ('"\\ud83d": 1', "config.yaml:3: \\ud83d: contains an unpaired surrogate"),
        ('"\\e[31m\\n": 1', "config.yaml:3: \\x1b[31m\\n: unknown key"),
        (
            "launch:\n\tdevices: auto",
            "config.yaml:4:1: not valid YAML: a tab cannot indent; use spaces",
        ),
        ("launch: {env: {A B: x}}", "'A B' is not a valid environment variable"),
        ("launch: {env: {A: 3}}", "launch.env.A: expected text, got 3"),
        (
            "model: {options: {image_size: 3}}",
            "model.options.image_size: no model of this config has the option 'image_size'",
        ),
        ("<<: {a: 1}", "merge keys"),
        ("---\nmodels: gpt2", "a second YAML document starts here"),
        ("? [a, b]\n: 1", "a key must be plain text"),
        ("x: [1, 2", "not valid YAML"),
    ],
)
def test_each_mistake_is_one_line_that_says_where_and_what(
    tmp_path: Path, line: str, told: str
) -> None:
    text = complaint(tmp_path, f"{SMALL}{line}\n")
    assert told in text
    assert "\n" not in text
    assert text.startswith("config.yaml")


def test_all_mistakes_are_told_at_once_in_the_files_order(tmp_path: Path) -> None:
    text = complaint(tmp_path, "models: [resnet5]\nbatch_sizes: [0, x]\ntraining:\n  seed: -1\n")
    assert text.splitlines() == [
        "config.yaml:1: models[0]: unknown model 'resnet5'; did you mean 'resnet50'?",
        "config.yaml:2: batch_sizes[0]: expected a number of at least 1, got 0",
        "config.yaml:2: batch_sizes[1]: expected a whole number, got 'x'",
        "config.yaml:4: training.seed: expected a number of at least 0, got -1",
    ]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (
            "num_experts: 0",
            "models[0].num_experts: expected a positive whole number such as 8, got 0",
        ),
        (
            "shared_experts: -1",
            "models[0].shared_experts: expected a whole number of at least 0, got -1",
        ),
        (
            "balance: -0.1",
            "models[0].balance: expected a number of at least 0, such as 0.01, got -0.1",
        ),
        ("skew: true", "models[0].skew: expected a number of at least 0, such as 0, got true"),
    ],
)
def test_options_of_models_have_their_types(tmp_path: Path, option: str, told: str) -> None:
    text = complaint(tmp_path, f"models: {{name: tiny-moe, {option}}}\nbatch_sizes: 4\n")
    assert text == f"config.yaml:1: {told}"


def test_options_that_switch_something_off_may_be_0(tmp_path: Path) -> None:
    loaded = load(
        tmp_path, "models: {name: tiny-moe, shared_experts: 0, balance: 0}\nbatch_sizes: 4\n"
    )
    assert loaded.options_of(loaded.models[0])["balance"] == 0


def test_models_that_would_be_measured_twice_or_not_at_all(tmp_path: Path) -> None:
    twice = "models: [gpt2, {name: gpt2, sequence_length: 1024}]\nbatch_sizes: 4\n"
    assert (
        complaint(tmp_path, twice)
        == "config.yaml:1: models[1]: builds the same model as models[0]; keep one"
    )
    same = "models: [{name: a:b, x: 1, y: 2}, {name: a:b, y: 2, x: 1}]\nbatch_sizes: 4\n"
    assert "is listed twice" in complaint(tmp_path, same)
    options = 'models: [{name: gpt2, "a.b": 1, "²": 2}, resnet5]\nbatch_sizes: 4\n'
    assert complaint(tmp_path, options.replace(", resnet5", "")).splitlines() == [
        "config.yaml:1: models[0].a.b: no model of this config has the option 'a.b'; known: "
        "sequence_length",
        "config.yaml:1: models[0].²: no model of this config has the option '²'; known: "
        "sequence_length",
    ]
    assert "models[0]: expected a model's name, or a mapping" in complaint(
        tmp_path, "models: [5]\nbatch_sizes: 4\n"
    )


def test_keys_that_stand_twice_are_told_with_all_else(tmp_path: Path) -> None:
    text = complaint(tmp_path, "models: gpt2\nbatch_sizes: 0\nfoo: 1\nmodels: gpt2\n")
    assert text.splitlines() == [
        "config.yaml:2: batch_sizes: expected a number of at least 1, got 0",
        "config.yaml:3: foo: unknown key",
        "config.yaml:4: models: is listed twice (first in line 1); keep one",
    ]


def test_a_flood_of_mistakes_is_cut(tmp_path: Path) -> None:
    lines = complaint(
        tmp_path, SMALL + "".join(f"key{number}: 1\n" for number in range(2000))
    ).splitlines()
    assert len(lines) == 51
    assert lines[-1] == "… and 1,950 more"


def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(ConfigError, match="larger than"):
        load_experiment(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "config.yaml is empty; expected keys such as models"),
        ("- 1\n", "config.yaml holds [1]; expected keys"),
        ("batch_sizes: 1\n", "config.yaml: models: this key is required"),
        ("a: " + "[" * 30 + "]" * 30, "nested more than 20 deep"),
        ("a: " + "x" * 1_000_001, "larger than 1,000,000 bytes"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, text: str, told: str) -> None:
    assert told in complaint(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.yaml: No such file"):
        load_experiment(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_experiment(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_experiment(tmp_path / "binary")


def test_json_mistakes_are_told_with_their_line(tmp_path: Path) -> None:
    assert "config.json:1:12" in complaint(tmp_path, '{"models": , 3}', name="config.json")
    text = complaint(
        tmp_path, '{"models": "gpt2",\n"batch_sizes": 4,\n"models": "gpt2"}', name="config.json"
    )
    assert text == "config.json:3: models: is listed twice (first in line 1); keep one"
    deep = '{"models": ' + "[" * 900 + "]" * 900 + "}"
    assert (
        complaint(tmp_path, deep, name="config.json") == "config.json:1: nested more than 20 deep"
    )
    large = '{"models": "gpt2", "batch_sizes": ' + "9" * 4000 + "}"
    assert "is too large a number" in complaint(tmp_path, large, name="config.json")
    text = complaint(tmp_path, '{"models": "gpt2",\n\t"batch_sizes": 0}', name="config.json")
    assert text == "config.json:2: batch_sizes: expected a number of at least 1, got 0"


def test_overrides_come_after_the_file_and_before_validation(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        "models: gpt2\nbatch_sizes: 0\n",
        "--batch_sizes=[32,64]",
        "--training.precision=amp",
        "--launch.env.NCCL_DEBUG=INFO",
        "--model.options.sequence_length",
        "128",
        "--training.epochs=null",
    )
    assert experiment.batch_sizes == (32, 64)
    assert experiment.training.precision == ("fp16",)
    assert experiment.launch.env == {"NCCL_DEBUG": "INFO"}
    assert experiment.model.options == {"sequence_length": 128}


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (
            "--training.precision=bf61",
            "--training.precision=bf61: expected 'fp32', 'tf32', 'fp16', 'bf16', 'fp8', 'mxfp8' or 'nvfp4', got "
            "'bf61'",
        ),
        (
            "--training.presicion=bf16",
            "--training.presicion=bf16: unknown key; did you mean 'precision'?",
        ),
        ("--dry-rnu", "--dry-rnu: no such option or config key; did you mean '--dry-run'?"),
        (
            "--batch_size=3",
            "--batch_size: no such option or config key; did you mean '--batch_sizes'?",
        ),
        ("--batch_sizes=", "empty value"),
        ("--batch_sizes", "missing value"),
        ("--d_model=3", "--d_model: no such option or config key"),
        ("--batch_sizes=[1", "expected ',' or ']'"),
        ("--batch_sizes.x=1", "batch_sizes is not a mapping of keys"),
        (
            "--batch_sizes=[1,x]",
            "--batch_sizes=[1,x]: batch_sizes[1]: expected a whole number, got 'x'",
        ),
        ("stray", "unexpected argument 'stray'"),
        ("--seed=3", "--seed: no such option or config key; did you mean '--training.seed'?"),
        ("--trainin.seed=3", "--trainin.seed=3: trainin: unknown key; did you mean 'training'?"),
        ("--batch_sizes=64,128", "got '64,128'; write a list as [64, 128]"),
        (
            "--models=resnet50,gpt2",
            "unknown model 'resnet50,gpt2'; write a list as [resnet50, gpt2]",
        ),
        ("--training.seed=x\ny", "--training.seed=x\\ny: expected a whole number, got 'x y'"),
    ],
)
def test_a_wrong_override_is_told_by_itself(tmp_path: Path, override: str, told: str) -> None:
    assert told in complaint(tmp_path, SMALL, override)


def test_of_two_overrides_of_a_key_the_last_counts(tmp_path: Path) -> None:
    assert load(tmp_path, SMALL, "--training.seed=-1", "--training.seed=2").training.seed == 2
    told = complaint(tmp_path, SMALL, "--training.seed=2", "--training.seed=-1")
    assert told == "--training.seed=-1: expected a number of at least 0, got -1"


@pytest.mark.parametrize(
    ("typed", "value"),
    [("4", "4"), ("", ""), ("'4'", "4"), ("true", "true"), ("a:b [", "a:b ["), ("1.50", "1.50")],
)
def test_an_environment_variable_on_the_command_line_is_text(
    tmp_path: Path, typed: str, value: str
) -> None:
    assert load(tmp_path, SMALL, f"--launch.env.A={typed}").launch.env == {"A": value}


def test_a_preset_fills_only_what_is_not_written(tmp_path: Path) -> None:
    rule = load(tmp_path, SMALL + "benchmark: {preset: quick, max_steps: 7}\n").benchmark
    assert (rule.max_steps, rule.min_steps, rule.target_half_width) == (7, 20, 0.05)


@settings(max_examples=200)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_bytes_give_an_experiment_or_a_clear_error(tmp_path: Path, content: bytes) -> None:
    for name in ("fuzz.yaml", "fuzz.json"):
        (tmp_path / name).write_bytes(content)
        try:
            load_experiment(tmp_path / name)
        except TorchscaleError as error:
            assert error.message


words = st.sampled_from(
    ["models", "batch_sizes", "training", "precision", "gpt2", "x", "auto", "launch", "devices"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300)
@given(st.dictionaries(words, values, max_size=6))
def test_any_structure_gives_an_experiment_or_a_clear_error(
    tmp_path: Path, content: dict[str, object]
) -> None:
    (tmp_path / "fuzz.yaml").write_text(yaml.safe_dump(content))
    try:
        load_experiment(tmp_path / "fuzz.yaml")
    except TorchscaleError as error:
        assert "fuzz.yaml" in error.message


@pytest.mark.parametrize(
    "content",
    [
        yaml.safe_load(KNOWN),
        {"models": {"name": "gpt2", "sequence_length": 8}, "batch_sizes": 1},
        {
            "models": ["pkg.mod:build"],
            "batch_sizes": [1],
            "training": {"precision": ["amp", "bf16"]},
            "gpu_counts": "auto",
        },
        {
            "models": "gpt2",
            "batch_sizes": 4,
            "launch": {"devices": [0, 3]},
            "benchmark": {"preset": "quick"},
        },
    ],
)
def test_the_schema_for_editors_accepts_what_the_reader_accepts(
    tmp_path: Path, content: dict[str, object]
) -> None:
    load(tmp_path, json.dumps(content), name="config.json")
    jsonschema.validate(content, Experiment.model_json_schema())


@pytest.mark.parametrize(
    "content",
    [
        {"models": "gpt2"},
        {"models": "gpt2", "batch_sizes": "four"},
        {"models": "gpt2", "batch_sizes": 4, "trainin": {}},
        {"models": "gpt2", "batch_sizes": 4, "training": {"precision": "fp61"}},
    ],
)
def test_the_schema_for_editors_refuses_what_the_reader_refuses(
    tmp_path: Path, content: dict[str, object]
) -> None:
    complaint(tmp_path, json.dumps(content), name="config.json")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, Experiment.model_json_schema())


option_values = (
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
own_models = st.dictionaries(
    texts.filter(lambda key: key != "name"), option_values | texts, max_size=3
).map(lambda options: {**options, "name": "pkg.mod:build"})


def axis(*values: object) -> st.SearchStrategy[object]:
    """One value or a list of different ones."""
    return st.sampled_from(values) | st.lists(st.sampled_from(values), min_size=1, unique=True)


configs = st.fixed_dictionaries(
    {
        "models": axis("resnet50", "gpt2", "tiny-bert") | own_models,
        "batch_sizes": st.integers(1, 512)
        | st.lists(st.integers(1, 512), min_size=1, max_size=3, unique=True),
    },
    optional={
        "experiment_name": st.from_regex(r"\A[A-Za-z0-9]{1,8}\Z")
        | st.sampled_from(["null", "1e3", "0x1F", "yes"]),
        "gpu_counts": axis(1, 2, 8) | st.just("auto"),
        "training": st.fixed_dictionaries(
            {},
            optional={
                "precision": axis("fp32", "tf32", "amp", "bf16"),
                "learning_rate": st.floats(0, 1e30, exclude_min=True),
                "epochs": st.none() | st.integers(1, 9),
            },
        ),
        "model": st.fixed_dictionaries({}, optional={"channels_last": axis(True, False)}),
        "benchmark": st.fixed_dictionaries(
            {"preset": st.sampled_from(["quick", "standard"])},
            optional={"max_seconds": st.floats(1e-9, 1e9)},
        ),
        "launch": st.fixed_dictionaries(
            {},
            optional={
                "devices": st.just("auto") | st.lists(st.integers(0, 9), min_size=1, unique=True),
                "env": st.dictionaries(
                    st.from_regex(r"\A[A-Z_]{1,5}\Z"),
                    texts.filter(lambda text: "\0" not in text)
                    | st.sampled_from(["-.5", ".5", "010", "~", "&a", "*"]),
                    max_size=3,
                ),
            },
        ),
    },
)


@settings(max_examples=200 if WHOLE else 60)
@given(configs)
def test_what_config_show_prints_loads_to_the_same(
    tmp_path: Path, content: dict[str, object]
) -> None:
    experiment = load(tmp_path, json.dumps(content), name="config.json")
    jsonschema.Draft202012Validator(EDITOR_SCHEMA).validate(content)
    for name, printed in (("again.yaml", to_yaml(experiment)), ("again.json", to_json(experiment))):
        assert load(tmp_path, printed, name=name) == experiment
        jsonschema.Draft202012Validator(EDITOR_SCHEMA).validate(json.loads(to_json(experiment)))


def test_models_are_needed_only_where_something_is_trained() -> None:
    alone = load_experiment(None, ["--measure=[collectives, hardware]"])
    assert (alone.models, alone.batch_sizes) == ((), ())
    assert (
        Experiment.model_validate_json(alone.model_dump_json()) == alone
    )  # as a run folder keeps it
    with pytest.raises(ConfigError, match="models: this key is required"):
        load_experiment(None, ["--measure=[collectives, memory]"])
    with pytest.raises(ConfigError, match="models: this key is required"):
        load_experiment(None, ["--measure=checkpoint"])
    with pytest.raises(
        ConfigError, match="'training', 'collectives', 'hardware', 'memory' or 'checkpoint'"
    ):
        load_experiment(None, ["--measure=[comm]"])


def test_sizes_are_read_as_people_write_them() -> None:
    read = load_experiment(
        None,
        ["--measure=collectives", "--collectives.max_bytes=64MiB", "--collectives.min_bytes=8"],
    )
    assert (read.collectives.min_bytes, read.collectives.max_bytes) == (8, 64 << 20)
    for wrong, said in (
        ("64MB/s", "not a number of bytes"),
        ("0", "at least 1"),
        ("1KB", "below min_bytes"),
    ):
        with pytest.raises(ConfigError, match=said):
            load_experiment(
                None,
                [
                    "--measure=collectives",
                    "--collectives.min_bytes=4KiB",
                    f"--collectives.max_bytes={wrong}",
                ],
            )


def test_hints_are_lines_that_a_shell_takes_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        load(tmp_path, SMALL, "--d_model=1024")
    assert refused.value.hint == "write --model.options.d_model=1024"
    with pytest.raises(ConfigError) as split:
        load(tmp_path, SMALL, "--model.options={d_model:")
    assert split.value.hint is not None
    assert "write --model.options.NAME=VALUE" in split.value.hint


def test_an_option_that_does_not_exist_comes_before_the_config_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UsageError, match="--modle: no such option or config key; did you mean '--model'"
    ):
        load_from_arguments(["--modle", "gpt2"], known_options=["--model"])


def test_a_named_pipe_is_refused_and_one_of_the_shell_is_read(tmp_path: Path) -> None:
    """The first would be waited for until somebody writes to it."""
    pipe = tmp_path / "config.yaml"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match=r"config\.yaml: a named pipe; expected a file"):
        read_document(pipe)
    reader, writer = os.pipe()
    os.write(writer, b"models: tiny-mlp\n")
    os.close(writer)
    try:
        assert read_document(Path(f"/dev/fd/{reader}")).data == {"models": "tiny-mlp"}
    finally:
        os.close(reader)
