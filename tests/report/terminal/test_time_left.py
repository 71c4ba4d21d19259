from __future__ import annotations

from torchscale.report.terminal.time_left import TimeLeft


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_follows_the_launches_that_have_ended() -> None:
    clock = Clock()
    left = TimeLeft(4, clock)
    assert left.text == ""
    left.started("a")
    clock.now += 10
    assert left.text == "", "nothing has ended"
    left.finished("a")
    assert left.seconds == 30.0, "three launches of ten seconds"
    left.started("b")
    clock.now += 4
    assert left.seconds == 26.0
    clock.now += 16
    assert left.seconds == 20.0, "one that takes longer delays the rest"
    left.finished("b")
    assert left.seconds == 2 * 15.0
    left.started("a")
    assert left.seconds == 15.0 + 10.0, "a cell takes as long as before"
    clock.now += 10
    left.finished("a")
    left.started("b")
    clock.now += 20
    left.finished("b")
    assert left.text == "", "all have ended"


def test_the_text_is_no_finer_than_the_estimate() -> None:
    clock = Clock()
    left = TimeLeft(61, clock)
    left.started("a")
    clock.now += 12.4
    left.finished("a")
    assert left.text == "about 12 min left"
