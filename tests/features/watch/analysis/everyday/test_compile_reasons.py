"""Guards in few words, and what to do about each kind."""

from __future__ import annotations

import pytest

from torchscale.features.watch.analysis.everyday.compile_reasons import advice_on, short_reason
from torchscale.features.watch.analysis.evidence import Compilation


@pytest.mark.parametrize(
    ("reason", "short", "advice"),
    [
        (
            "0/1: tensor 'x' size mismatch at index 0. expected 4, actual 5",
            "tensor 'x' size mismatch at index 0",
            "mark_dynamic",
        ),
        (
            "0/0: tensor 'x' rank mismatch. expected 2, actual 3",
            "tensor 'x' rank mismatch",
            "numbers of dimensions",
        ),
        (
            "2/3: tensor 'x' dtype mismatch. expected Float, actual Double",
            "tensor 'x' dtype mismatch",
            "dtypes",
        ),
        (
            "0/2: tensor 'x' requires_grad mismatch. expected requires_grad=0",
            "tensor 'x' requires_grad mismatch",
            "detach",
        ),
        ("0/5: GLOBAL_STATE changed: grad_mode ", "GLOBAL_STATE changed: grad_mode", "grad mode"),
        (
            "0/3: s.k == 3                  # s.k+=1  # job/net.py:7 in forward (HINT: …)",
            "s.k == …",
            "constant",
        ),
        (
            "0/0: fn._modules['1'].training == True      # return F.dropout(…",
            "fn._modules['1'].training == True",
            "between training and evaluation",
        ),
        ("1/1: len(xs) == 2      # g=torch.compile(…", "len(xs) == …", "length"),
        ("0/0: ___check_obj_id(fn, 140)", "___check_obj_id(fn, 140)", "outside the loop"),
        ("0/0: something new", "something new", "TORCH_LOGS=recompiles"),
    ],
)
def test_each_guard_has_its_words_and_its_advice(reason: str, short: str, advice: str) -> None:
    assert short_reason(reason) == short
    assert advice in advice_on([_compiled(reason)])


def test_the_advice_is_for_what_took_most_time() -> None:
    compiled = [
        *[_compiled("0/0: s.k == 1", 0.1)] * 3,
        _compiled("0/1: tensor 'x' size mismatch at index 0. expected 4, actual 5", 5.0),
    ]
    assert "mark_dynamic" in advice_on(compiled)


def test_a_long_reason_is_shortened() -> None:
    assert len(short_reason("0/0: " + "a" * 500)) == 100


def _compiled(reason: str, seconds: float = 1.0) -> Compilation:
    return Compilation(50, 0, seconds, "forward", "/job/model.py", 31, reason)
