"""What gloo says when it ends a rank."""

from __future__ import annotations

from torchscale.launch.gloo_log import size_error


def test_gloo_ends_a_rank_that_receives_too_much() -> None:
    text = (
        "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 1024 vs 512. Received data "
        "size doesn't match"
    )
    assert size_error(text) == (1024, 512)
    assert size_error("preamble") is None
