"""Why torch.compile compiles again, in few words, and what to do about it.

The texts of guards are those of ``torch/csrc/dynamo/guards.cpp`` (tensors, global state) and
``torch/_dynamo/guards.py`` (Python values: the expression that does not hold any more).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from torchscale.features.watch.analysis.evidence import Compilation

_MAX_REASON = 100
"""Characters of a reason that are shown."""
_NUMBER = re.compile(r"^\d+/\d+: ")
"""The compilation whose guard failed."""
_COMMENT = re.compile(r"\s+#\s.*$")
"""The program's line, which torch writes behind the expression."""
_EXPECTED = re.compile(r"\.? expected .*$")
_VALUE = re.compile(r"(?<=[=!<>]= )-?\d[\d.]*")
"""What differs from time to time in reasons that are one."""

_LIMIT = (
    "torch.compile gives up on a function after torch._dynamo.config.recompile_limit compilations, "
    "and runs it without: "
)
_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"size mismatch|\.size\(\)|\.shape|stride mismatch|\.stride\(\)",
        "sizes change from batch to batch: mark what changes with torch._dynamo.mark_dynamic, "
        "compile with dynamic=True, or pad to a few fixed sizes; drop_last=True of the loader "
        "leaves out a smaller last batch",
    ),
    (
        r"GLOBAL_STATE|grad_mode|autocast|num_threads|deterministic",
        "grad mode, autocast or another setting of torch differs between calls: compile training "
        "and evaluation as functions of their own, and call each in one mode alone",
    ),
    (
        r"\.training\b",
        "the module changes between training and evaluation: compile one function for each",
    ),
    (
        r"dtype mismatch|dispatch key|device index",
        "tensors come in several dtypes or from several devices: convert them before the call",
    ),
    (
        r"requires_grad mismatch",
        "tensors come with and without gradients: detach them, or compile a function for each",
    ),
    (
        r"rank mismatch",
        "tensors come with different numbers of dimensions: compile a function for each",
    ),
    (
        r"^len\(|___dict_contains|\.keys\(\)|len\(",
        "a list or a dict changes its length or keys: give it a fixed form",
    ),
    (
        r"___check_obj_id|___check_type_id|\bis (not )?\w|___check_function",
        "another object comes in each time (a lambda, a new module, a new optimizer): make it "
        "once, outside the loop, and call torch.compile once",
    ),
    (
        r"==|math\.",
        "a Python number that changes is compiled in as a constant: pass it as a tensor, keep "
        "counters outside of the compiled function, or mark it with mark_dynamic",
    ),
)
_OTHER = (
    "run with TORCH_LOGS=recompiles, which tells each guard that fails, and keep what it names the "
    "same from call to call"
)


def short_reason(reason: str) -> str:
    """``tensor 'x' size mismatch at index 0``: the guard, without what differs from time to
    time."""
    text = _COMMENT.sub("", _NUMBER.sub("", reason)).strip()
    text = _VALUE.sub("…", _EXPECTED.sub("", text))
    return text if len(text) <= _MAX_REASON else f"{text[: _MAX_REASON - 1]}…"


def advice_on(compilations: Sequence[Compilation]) -> str:
    """What to do about the reason that took most time."""
    times: dict[str, float] = defaultdict(float)
    for one in compilations:
        times[_advice(one.reason)] += one.seconds
    advice = max(times, key=lambda key: times[key])
    if any(one.has_failed for one in compilations):
        return f"{_LIMIT}{advice}"
    return advice


def _advice(reason: str) -> str:
    if not reason:
        return "compile before the loop, with each size and mode that the job needs"
    text = _COMMENT.sub("", _NUMBER.sub("", reason))
    return next((advice for form, advice in _ADVICE if re.search(form, text)), _OTHER)
