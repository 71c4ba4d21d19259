"""Configs of SuperBench: the models of all groups, their parameters and modes, and what of its
micro-benchmarks is measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchscale.catalog.model_facts import InputKind
from torchscale.catalog.models import find_model
from torchscale.config.messages import unknown_model
from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import Data
from torchscale.features.imports.models import entry, known_model
from torchscale.features.imports.names import COLLECTIVES, PRECISIONS
from torchscale.features.imports.nccl_tests import place_sweep
from torchscale.features.imports.worksheet import Path, Worksheet, as_list, is_on

_DEFAULTS: Mapping[str, Data] = {
    "batch_size": 32,
    "num_warmup": 64,
    "num_steps": 2048,
    "precision": ["float32", "float16"],
}
"""SuperBench's own, of a group that does not set them (its model_base.py)."""
_MESSAGES = ("8", "8G")
"""SuperBench's own smallest and largest message."""
_SEQUENCE_LENGTH = 512
"""SuperBench's own, of every model of text; GPT-2 has 1,024 here."""
_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
)
_TRAINING_MODE = "torch.distributed"
_COLLECTIVES = ("nccl-bw", "rccl-bw")
_HARDWARE = ("gemm-flops", "matmul", "mem-bw")
_OTHER_MEANS: Mapping[str, str] = {
    "gpu-burn": "no such cell; `torchscale validate --burn-in` is a burn-in",
    "ib-loopback": "no such cell; `torchscale validate --nnodes N --pairwise` measures links",
    "ib-traffic": "no such cell; `torchscale validate --nnodes N --pairwise` measures links",
    "disk-benchmark": "no such cell; `torchscale measure hardware --disk DIR` measures disks",
    "megatron-gpt": "Megatron's own program; a script of your own can be a model: {command: …}",
}
_MIN_STEPS = 100
"""The preset's ``benchmark.min_steps``, which may not exceed the steps of a group."""


def is_superbench(data: Mapping[str, Data]) -> bool:
    """Whether a config has the form of SuperBench's."""
    section = data.get("superbench")
    return isinstance(section, dict) and "benchmarks" in section


def from_superbench(data: Mapping[str, Data]) -> Translation:
    """A config of SuperBench, whose anchors are written out already."""
    sheet = Worksheet("SuperBench", data)
    whole = data.get("superbench")
    section: Mapping[str, Data] = whole if isinstance(whole, dict) else {}
    benchmarks = section.get("benchmarks")
    named = _enabled(sheet, section.get("enable"), benchmarks)
    measure: list[str] = []
    for name, benchmark in benchmarks.items() if isinstance(benchmarks, dict) else ():
        path = ("superbench", "benchmarks", name)
        if not isinstance(benchmark, dict):
            sheet.leave(path, "expected a mapping")
        elif not (name in named if named else is_on(benchmark.get("enable"))):
            sheet.leave(path, "is not enabled")
        elif kind := _benchmark(sheet, path, name, benchmark):
            measure.append(kind)
    kinds = [kind for kind in ("training", "collectives", "hardware") if kind in measure]
    if kinds and kinds != ["training"]:
        sheet.place("measure", list(kinds))
    sheet.settle("version", "is that of SuperBench's form")
    sheet.settle("superbench.var", "is written out where groups name its anchors")
    sheet.settle("superbench.monitor", "is telemetry here, which samples anyway")
    return sheet.done()


def _enabled(sheet: Worksheet, names: Data, benchmarks: Data) -> list[Data]:
    """The benchmarks that are enabled by name; those that the file does not have are left out."""
    named = as_list(names)
    if named:
        sheet.settle("superbench.enable", "says which benchmarks are translated")
    else:
        sheet.take("superbench.enable")
    there = benchmarks if isinstance(benchmarks, dict) else {}
    for name in map(str, named):
        if name not in there:
            reason = "is enabled, and there is no benchmark of this name"
            sheet.leave(("superbench", "enable", name), reason)
    return named


def _benchmark(sheet: Worksheet, path: Path, name: str, benchmark: Mapping[str, Data]) -> str:
    """Translate one; what it measures here, or nothing."""
    base = name.partition(":")[0]
    sheet.take((*path, "enable"))
    if benchmark.get("models"):
        return _group(sheet, path, benchmark)
    if base in _COLLECTIVES:
        return _collectives(sheet, path)
    if base in _HARDWARE:
        sheet.result.renamed[name] = "measure: hardware"
        for part in ("modes", "frameworks"):
            sheet.take((*path, part))
        if sheet.has(path):
            sheet.leave((*path, "parameters"), "measure: hardware has sizes of its own")
        return "hardware"
    sheet.leave(path, _OTHER_MEANS.get(base, "no such measurement here"))
    return ""


def _group(sheet: Worksheet, path: Path, benchmark: Mapping[str, Data]) -> str:
    """A group of models that are trained."""
    given = benchmark.get("parameters")
    parameters: dict[str, Data] = dict(given) if isinstance(given, dict) else {}
    frameworks = as_list(sheet.take((*path, "frameworks")))
    actions = as_list(sheet.take((*path, "parameters", "model_action"))) or ["train"]
    if frameworks and "pytorch" not in frameworks:
        sheet.leave(path, f"frameworks {frameworks}; torchscale trains with PyTorch")
        return ""
    if "train" not in actions:
        sheet.leave(path, f"model_action {actions}; torchscale measures training")
        return ""
    if actions != ["train"]:
        sheet.leave("model_action", f"{actions}: torchscale measures training alone")
    found = _models(sheet, path, as_list(sheet.take((*path, "models"))), parameters)
    if not found:
        sheet.leave(path, "none of its models is known here")
        return ""
    sheet.join("models", found, "models")
    _parameters(sheet, path, {**_DEFAULTS, **parameters})
    _modes(sheet, as_list(sheet.take((*path, "modes"))))
    return "training"


def _models(
    sheet: Worksheet, path: Path, names: Sequence[Data], parameters: Mapping[str, Data]
) -> list[Data]:
    lengths = sheet.take((*path, "parameters", "seq_len")) or _SEQUENCE_LENGTH
    images = sheet.take((*path, "parameters", "image_size"))
    classes = sheet.take((*path, "parameters", "num_classes"))
    sizes = [key for key in _SIZES if key in parameters]
    found: list[Data] = []
    for name in map(str, names):
        here = known_model(name)
        if here is None:
            sheet.leave((*path, "models", name), unknown_model(name))
            continue
        facts = find_model(here)
        is_text = facts is not None and facts.input_kind is InputKind.TOKENS
        if is_text and sizes:
            reason = f"{', '.join(sizes)}: {here} has fixed sizes here; decoder-* take options"
            sheet.leave((*path, "models", name), reason)
            continue
        options = {"image_size": images, "num_classes": classes}
        if is_text:
            options = {"sequence_length": lengths}
        found.append(entry(here, options))
        if here != name:
            sheet.result.renamed[name] = here
    return found


def _parameters(sheet: Worksheet, path: Path, values: Mapping[str, Data]) -> None:
    """Batch sizes and precisions join those of other groups; numbers of steps are one for all."""
    unset = [key for key in _DEFAULTS if not sheet.has((*path, "parameters", key))]
    if unset:
        sheet.note(f"{path[-1]}: {', '.join(unset)} not set; SuperBench's own defaults are written")
    for key in _DEFAULTS:
        sheet.take((*path, "parameters", key))
    sizes, precisions = as_list(values["batch_size"]), as_list(values["precision"])
    _join(sheet, "batch_sizes", sizes, "parameters.batch_size")
    known = [PRECISIONS.get(str(name).casefold()) for name in precisions]
    _join(sheet, "training.precision", [one for one in known if one], "parameters.precision")
    for name, here in zip(precisions, known, strict=True):
        if here is None:
            sheet.leave(f"precision {name}", "no such precision of training here")
    _steps(sheet, path, values["num_warmup"], values["num_steps"])
    for key, target in (("num_workers", "data.workers"), ("sample_count", "data.num_samples")):
        _one_for_all(sheet, path, key, target, sheet.take((*path, "parameters", key)))
    pinned = sheet.take((*path, "parameters", "pin_memory"))
    if pinned is not None:
        _one_for_all(sheet, path, "pin_memory", "data.pin_memory", is_on(pinned))
    if is_on(sheet.take((*path, "parameters", "no_gpu"))):
        _one_for_all(sheet, path, "no_gpu", "device", "cpu")
    spread = sheet.take((*path, "parameters", "distributed_impl"))
    if spread not in (None, "ddp"):
        sheet.leave("parameters.distributed_impl", f"{spread}: see parallel.strategy")


def _steps(sheet: Worksheet, path: Path, warmup: Data, steps: Data) -> None:
    if warmup == 0:
        sheet.leave("parameters.num_warmup", "0: at least one step here")
    else:
        _one_for_all(sheet, path, "num_warmup", "benchmark.warmup_steps", warmup)
    seconds = sheet.take((*path, "parameters", "duration"))
    if isinstance(seconds, int | float) and seconds > 0:
        _one_for_all(sheet, path, "duration", "benchmark.measure_seconds", float(seconds))
    else:
        _one_for_all(sheet, path, "num_steps", "benchmark.max_steps", steps)
        if isinstance(steps, int) and steps < _MIN_STEPS:
            sheet.place("benchmark.min_steps", steps)


def _one_for_all(sheet: Worksheet, path: Path, key: str, target: str, value: Data) -> None:
    """A setting that all models share here: that of the first group that has one."""
    if value is None:
        return
    known = sheet.value(target)
    if known is not None and known != value:
        sheet.leave((*path, "parameters", key), f"{value}: {target} is {known}, for all models")
    else:
        sheet.place(target, value, f"parameters.{key}")


def _join(sheet: Worksheet, target: str, values: Sequence[Data], source: str) -> None:
    known = as_list(sheet.value(target))
    if known and set(map(str, known)) != set(map(str, values)):
        sheet.differ(f"groups differ in {target}, and here every model runs with each")
    sheet.join(target, values, source)


def _modes(sheet: Worksheet, modes: Sequence[Data]) -> None:
    """How a group is started: its processes are the devices."""
    for mode in modes:
        if not isinstance(mode, dict):
            continue
        count, nodes = mode.get("proc_num", 8), mode.get("node_num", 1)
        if not isinstance(count, int):
            sheet.leave("modes.proc_num", f"{count!r}: expected a whole number")
        elif mode.get("name") == _TRAINING_MODE and isinstance(nodes, int) and nodes > 1:
            sheet.place("launch.nodes", nodes)
            sheet.result.renamed["modes.node_num"] = "launch.nodes"
            sheet.place("launch.devices_per_node", count)
            sheet.join("gpu_counts", [count * nodes], "modes.proc_num")
        elif mode.get("name") == _TRAINING_MODE:
            sheet.join("gpu_counts", [count], "modes.proc_num")
            if nodes != 1:
                sheet.note(f"modes.node_num {nodes}: for several nodes add --nnodes")
        else:
            sheet.join("gpu_counts", [1], "modes.proc_num")
            sheet.note(f"mode {mode.get('name')}: single processes side by side; here one alone")
        _environment(sheet, mode)


def _environment(sheet: Worksheet, mode: Mapping[str, Data]) -> None:
    variables = mode.get("env")
    for name, value in variables.items() if isinstance(variables, dict) else ():
        sheet.place(f"launch.env.{name}", str(value))
        sheet.result.renamed[f"modes.env.{name}"] = f"launch.env.{name}"
    for key in mode:
        if key not in ("name", "proc_num", "node_num", "env", "parallel"):
            sheet.leave(f"modes.{key}", "torchscale starts the ranks itself")


def _collectives(sheet: Worksheet, path: Path) -> str:
    """``nccl-bw``, as nccl-tests measures it."""
    if "collectives" in sheet.result.data:
        sheet.leave(path, "a second run of collectives; a second config can have it (launch.env)")
        return ""
    parameters = (*path, "parameters")
    operations = as_list(sheet.take((*parameters, "operation"))) or ["allreduce"]
    known = [COLLECTIVES.get(str(name).casefold().replace("_", "")) for name in operations]
    for name, here in zip(operations, known, strict=True):
        if here is None:
            sheet.leave((*parameters, "operation", str(name)), "no such collective here")
    sheet.place("collectives.operations", [one for one in known if one], "parameters.operation")
    place_sweep(sheet, parameters, _MESSAGES)
    devices = sheet.take((*parameters, "ngpus"))
    for mode in as_list(sheet.take((*path, "modes"))):
        if isinstance(mode, dict):
            count = mode.get("proc_num", 1)
            if isinstance(count, int) and isinstance(devices, int):
                sheet.join("gpu_counts", [count * devices], "parameters.ngpus")
            _environment(sheet, mode)
    return "collectives"
