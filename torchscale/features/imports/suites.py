"""The JSON that several small suites share: ``hardware``, ``model`` with a size, and
``parallelization`` with degrees."""

from __future__ import annotations

from collections.abc import Mapping

from torchscale.catalog.models import MODELS, find_model
from torchscale.config.messages import unknown_model
from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import Data
from torchscale.features.imports.models import entry, known_model
from torchscale.features.imports.names import DEVICES, STRATEGIES
from torchscale.features.imports.worksheet import Worksheet, as_list, with_options

_DECODERS = ("transformer", "decoder", "gpt", "llm")
_SIZES = ("small", "medium", "large")
_SIZE_KEYS: Mapping[str, str] = {
    "layers": "num_layers",
    "num_layers": "num_layers",
    "hidden_size": "hidden_size",
    "hidden_dim": "hidden_size",
    "d_model": "hidden_size",
    "num_heads": "num_heads",
    "attention_heads": "num_heads",
    "num_attention_heads": "num_heads",
    "vocab_size": "vocab_size",
    "sequence_length": "sequence_length",
    "seq_length": "sequence_length",
    "max_seq_length": "sequence_length",
    "context_length": "sequence_length",
}
"""Key of the model there → option of a decoder here."""
_HEAD_SIZE = 64
"""Width of a head of GPT-2 and of BERT, where the number of heads does not fit the width."""
_DEGREES: Mapping[str, str] = {
    "data_parallel_size": "data",
    "model_parallel_size": "tensor",
    "tensor_parallel_size": "tensor",
    "pipeline_parallel_size": "pipeline",
    "pipeline_stages": "pipeline",
}
_COPIES = ("ddp", "zero1", "fsdp")
"""Strategies of which every device takes a part of the batch."""
_MICROBATCHES = ("micro_batches", "num_micro_batches", "num_microbatches")
_GIGABIT_BYTES = 1e9 / 8


def is_suite(data: Mapping[str, Data]) -> bool:
    """Whether a config has this form."""
    model = data.get("model")
    has_kind = isinstance(model, dict) and "model_type" in model
    return isinstance(data.get("parallelization"), dict) or has_kind


def from_suite(data: Mapping[str, Data]) -> Translation:
    """A config of this form; keys that others use too find their places as usual."""
    sheet = Worksheet("", data)
    _hardware(sheet)
    _model(sheet)
    _strategy(sheet)
    return sheet.done_as_usual()


def _hardware(sheet: Worksheet) -> None:
    device = sheet.take_word("hardware.device_type")
    if device in DEVICES:
        sheet.place("device", DEVICES[device], "hardware.device_type")
    elif device:
        sheet.leave("hardware.device_type", f"{device}: see `torchscale docs names devices`")
    count = sheet.take_whole("hardware.num_devices")
    if count is not None:
        sheet.place("gpu_counts", [count], "hardware.num_devices")
    rate = sheet.take_number("hardware.network_bandwidth_gbps")
    if rate is not None:
        sheet.place(
            "hardware.link_bytes_per_second",
            rate * _GIGABIT_BYTES,
            "hardware.network_bandwidth_gbps",
        )
    memory = sheet.take_number("hardware.memory_per_device_gb")
    if memory is not None:
        sheet.place("memory.limit", f"{memory:.15g}GiB", "hardware.memory_per_device_gb")
    sheet.leave_present(
        {"hardware.interconnect": "the link is detected, or named by hardware.link"}
    )


def _model(sheet: Worksheet) -> None:
    kind, size = sheet.take_word("model.model_type"), sheet.take_word("model.size")
    sheet.settle("model.parameters", "follows from layers and width")
    if not kind:
        if size:
            sheet.leave("model.size", f"{size}: model.model_type is not set")
        return
    options = _sizes(sheet)
    if kind in _DECODERS:
        _decoder(sheet, size, options)
        return
    name = known_model(f"{kind}-{size}") or known_model(kind)
    if name is None:
        sheet.leave("model.model_type", unknown_model(kind))
        _leave_sizes(sheet, f"is of {kind}, which is unknown here")
        return
    if size and name != known_model(f"{kind}-{size}"):
        sheet.leave("model.size", f"{size}: {name} has one size here")
    elif size:
        sheet.result.renamed["model.size"] = "models"
    _place_model(sheet, name, options)


def _sizes(sheet: Worksheet) -> dict[str, int | None]:
    """Options of a decoder; the first of several keys that mean the same counts."""
    options: dict[str, int | None] = {}
    for there, here in _SIZE_KEYS.items():
        if not sheet.has(f"model.{there}"):
            continue
        value = sheet.take_whole(f"model.{there}")
        known = options.setdefault(here, value)
        if value is not None and known not in (None, value):
            sheet.leave(f"model.{there}", f"{value}: {here} is {known} already")
        elif known is None:
            options[here] = value
    return options


def _leave_sizes(sheet: Worksheet, reason: str) -> None:
    for key in ("size", *_SIZE_KEYS):
        if sheet.is_given(f"model.{key}"):
            sheet.leave(f"model.{key}", reason)


def _decoder(sheet: Worksheet, size: str, options: dict[str, int | None]) -> None:
    if size and size not in _SIZES:
        sheet.leave("model.size", f"{size}: expected small, medium or large")
    name = f"decoder-{size if size in _SIZES else _SIZES[0]}"
    _place_model(sheet, name, _with_heads(sheet, name, options))
    if size in _SIZES:
        sheet.result.renamed["model.size"] = "models"


def _place_model(sheet: Worksheet, name: str, options: Mapping[str, Data]) -> None:
    """Place a model, and say which of the file's options it has."""
    whole = entry(name, options)
    sheet.place("models", [whole], "model.model_type")
    facts = find_model(name)
    known = {} if facts is None else facts.options
    for there, here in _SIZE_KEYS.items():
        key = f"model.{there}"
        if not sheet.is_given(key) or key in sheet.result.left_out:
            continue
        if here not in known:
            sheet.leave(key, f"{name} has no {here} here")
        elif isinstance(whole, dict) and here in whole:
            sheet.result.renamed[key] = f"models.{here}"


def _with_heads(sheet: Worksheet, name: str, options: dict[str, int | None]) -> Mapping[str, Data]:
    """The options with a number of heads that divides the width."""
    width, heads = options.get("hidden_size"), options.get("num_heads")
    usual = MODELS[name].options["num_heads"]
    if width is None or heads is not None or width % int(usual) == 0:
        return dict(options)
    if width % _HEAD_SIZE:
        sheet.leave(
            "model.hidden_size", f"{width} is no multiple of {usual} heads, and none is set"
        )
        return {**options, "hidden_size": None}
    sheet.note(f"num_heads is not set: {width // _HEAD_SIZE}, of {_HEAD_SIZE} each")
    return {**options, "num_heads": width // _HEAD_SIZE}


def _strategy(sheet: Worksheet) -> None:
    section = "parallelization."
    word = sheet.take_word(f"{section}strategy")
    name = STRATEGIES.get(word)
    if name is None:
        if word:
            reason = f"{word}: see `torchscale docs names strategies`"
            sheet.leave(f"{section}strategy", reason)
        return
    options: dict[str, Data] = {}
    for key, here in _DEGREES.items():
        degree = sheet.take_whole(section + key)
        option = _option(name, here)
        if degree is None:
            continue
        if not option:
            _leave_degree(sheet, section + key, name, here, degree)
        elif options.setdefault(option, degree) == degree:
            sheet.result.renamed[section + key] = f"parallel.strategy.{option}"
        else:
            sheet.leave(section + key, f"{degree}: {option} is {options[option]} already")
    for key in _MICROBATCHES:
        count = sheet.take_whole(section + key) if name in ("pipeline", "hybrid") else None
        if count is not None:
            options["microbatches"] = count
            sheet.result.renamed[section + key] = "parallel.strategy.microbatches"
    sheet.place("parallel.strategy", with_options(name, options), f"{section}strategy")


def _option(strategy: str, degree: str) -> str:
    """The option of a strategy that holds this degree; empty where it has none."""
    if strategy == "hybrid":
        return degree
    return "degree" if strategy == degree else ""


def _leave_degree(sheet: Worksheet, key: str, strategy: str, degree: str, value: int) -> None:
    """Say why a degree has no place; that of all devices is the strategy's own."""
    counts = as_list(sheet.value("gpu_counts"))
    if value == 1 or (degree == "data" and strategy in _COPIES and counts in ([], [value])):
        return
    others = "strategy hybrid has one"
    if degree != "data":
        others = f"strategies {degree} and hybrid have one"
    reason = f"{value}: strategy {strategy} has no degree of {degree} parallelism; {others}"
    sheet.leave(key, reason)
