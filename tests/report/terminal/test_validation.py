from __future__ import annotations

import io

from rich.console import Console

from torchscale.report.terminal.validation import print_fixes
from torchscale.schema.node.check import Check, Status, Validation
from torchscale.schema.node.probe import NodeFacts


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
