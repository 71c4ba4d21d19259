from __future__ import annotations

import io
import re

from rich.console import Console

from torchscale.features.validate.terminal import print_fixes, print_validation
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.probe import NodeFacts
from torchscale.schema.node.validation import Disposition, PartVerdict, Validation


def test_commands_are_printed_whole_and_as_they_are() -> None:
    command = "sudo nvidia-smi -i GPU-1b3f --gpu-reset [bold] " + "x" * 200
    checks = (
        Check(
            id="a",
            group="GPUs",
            title="ECC",
            status=Status.FAIL,
            seen="2 errors",
            fixes=(command, "second"),
        ),
        Check(id="b", group="GPUs", title="fine", status=Status.PASS, seen="ok"),
        Check(id="c", group="host", title="clock", status=Status.NOT_APPLICABLE, seen="none"),
    )
    out = io.StringIO()
    print_fixes(
        Validation(fit=False, verdict="no", checks=checks, facts=NodeFacts()),
        Console(file=out, width=80),
    )
    assert out.getvalue().splitlines() == ["", "ECC: 2 errors", f"  {command}", "  second"]


def test_parts_that_are_not_kept_are_told_one_by_one_and_the_others_in_a_line() -> None:
    parts = (
        PartVerdict(part="GPU 0 (a)", gpu=0, disposition=Disposition.KEEP),
        PartVerdict(part="GPU 1 (b)", gpu=1, disposition=Disposition.KEEP),
        PartVerdict(
            part="GPU 2 (c)",
            gpu=2,
            disposition=Disposition.RETURN,
            action="replace the GPU",
            reasons=("[a row] could not be remapped",),
        ),
        PartVerdict(part="node", disposition=Disposition.KEEP),
    )
    text = _printed(parts, unseen=("burn-in",))
    assert re.search(
        r"^return +GPU 2 \(c\) +replace the GPU +\[a row\] could not be", text, re.MULTILINE
    )
    assert "no fault was found: GPU 0, 1, node" in text
    assert "not looked at: burn-in" in text


def test_a_node_without_gpus_that_is_kept_prints_no_parts() -> None:
    assert "keep" not in _printed((PartVerdict(part="node", disposition=Disposition.KEEP),))


def _printed(parts: tuple[PartVerdict, ...], unseen: tuple[str, ...] = ()) -> str:
    out = io.StringIO()
    validation = Validation(
        fit=True, verdict="fit", checks=(), facts=NodeFacts(), parts=parts, unseen=unseen
    )
    print_validation(validation, Console(file=out, width=80))
    return out.getvalue()
