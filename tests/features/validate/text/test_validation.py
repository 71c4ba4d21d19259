"""A validation in one line."""

from __future__ import annotations

from tests.features.validate.health.test_disposition import of, validated
from tests.features.validate.health.test_kernel_log import message
from torchscale.features.validate.text.validation import one_line
from torchscale.schema.node.probe import DiskFacts


def test_what_is_to_be_returned_comes_first() -> None:
    broken = DiskFacts(path="/data", error="Read-only file system")
    log = (message(64, "0000:1e:00"),)
    facts = of(ecc_uncorrected=1, log=log).model_copy(update={"disk": broken})
    line = one_line(validated(facts))
    assert line == (
        "return GPU 3: replace the GPU (Xid 64 (memory row could not be remapped), 2 h 00 min ago); "
        "retest GPU 2: reset the GPU (uncorrected memory errors since the driver was loaded: 1); "
        "retest node: output directory: /data: Read-only file system"
    )


def test_a_node_that_is_kept_says_its_verdict() -> None:
    assert one_line(validated(of())) == "Fit for training on 4 GPUs."
