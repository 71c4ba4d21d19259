"""What is said of a number that may have changed, as a sentence, as data and as a table."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from tests.features.bisect.test_changes import SCATTER, play
from torchscale.features.bisect.change_export import describe_change
from torchscale.features.bisect.change_verdict import ChangeSentences, number_text
from torchscale.features.bisect.changes import ChangeSearch
from torchscale.features.bisect.export_schema import BisectionExport
from torchscale.features.bisect.printed import PrintedNumber
from torchscale.features.bisect.question import Question, ask, ask_versions
from torchscale.features.bisect.tables import print_bisection

SIX = ask_versions("demo=1.0,1.1,1.2,1.3,1.4,1.5")
TWO = ask_versions("demo=1,2")
FACTORS = ask("a==1,b==1", "a==2,b==2", directory=Path())
LOSS = PrintedNumber()


def told(
    search: ChangeSearch, question: Question = SIX, number: PrintedNumber = LOSS
) -> BisectionExport:
    return describe_change(
        question, search, number, interrupted=False, launches=(), command="torchscale bisect …"
    )


def change_export() -> BisectionExport:
    """One with a change of means, and an environment in between that was not launched."""
    return told(play(lambda place: 2.3 - 0.2 * (place >= 3), 6, scatter=SCATTER, seed=1))


def shown(result: BisectionExport) -> str:
    text = io.StringIO()
    print_bisection(result, Console(file=text, width=80))
    return text.getvalue()


def test_a_version_with_the_numbers_in_full() -> None:
    result = told(play(lambda place: math.nextafter(2.31, 3) if place >= 3 else 2.31, 6))
    assert result.verdict == (
        "The loss changed with demo 1.3, against demo 1.2: 2.31 → 2.3100000000000005 (+4.44e-16)."
    )
    assert (result.kind, result.answers, result.metric) == ("step", (("demo 1.3",),), "loss")
    assert result.change is not None
    assert result.change.rule == "exactly"
    (shift,) = result.change.shifts
    assert (shift.against, shift.since, shift.before) == ("demo 1.2", "demo 1.3", "2.31")
    assert [one.level for one in result.environments] == [0, None, 0, 1, None, 1]
    assert result.environments[3].numbers == ("2.3100000000000005",)
    assert result.notes == ()
    table = shown(result)
    assert "2.3100000000000005" in table
    assert "Compared exactly" in table


def test_no_change() -> None:
    result = told(play(lambda _: 2.5, 6))
    assert result.verdict == "The loss did not change: demo 1.0 and demo 1.5 both print 2.5."
    near = told(play(lambda place: 2.5 + 1e-9 * place, 6, tolerance=1e-6))
    assert near.verdict.startswith("The loss did not change by more than the tolerance: demo 1.0 ")
    means = told(play(lambda _: -2.5, 6, scatter=SCATTER))
    assert means.verdict.startswith("The loss did not change by 0.0")
    assert "Compared by means: launches of demo 1.0 print different numbers (" in shown(means)
    assert "-2.5" in shown(means)


def test_nan_is_text_in_the_json() -> None:
    result = told(play(lambda place: math.nan if place >= 2 else 1.0, 6))
    assert result.verdict.endswith("demo 1.2, against demo 1.1: 1.0 → nan.")
    change = json.loads(result.model_dump_json())["change"]
    assert (change["shifts"][0]["after"], change["shifts"][0]["difference"]) == ("nan", None)
    scattered = told(play(lambda place: math.nan if place >= 2 else 1.0, 6, scatter=SCATTER))
    assert scattered.change is not None
    assert scattered.change.rule == "finite"
    assert "Compared as finite or not" in shown(scattered)


def test_a_third_number_is_a_further_change() -> None:
    result = told(play(lambda place: (0.0, 0.0, 0.5, 0.5, 9.0, 9.0)[place], 6))
    assert result.answers == (("demo 1.4",),)
    assert result.notes == (
        "The loss also changes with demo 1.2, against demo 1.1: 0.0 → 0.5 (+0.5).",
    )
    assert "yes, another" in shown(result)
    back = told(play(lambda place: (1.0, 1.0, 1.0, 8.0, 1.0, 2.0)[place], 6))
    assert any(note.endswith("8.0 → 1.0 (-7), as at demo 1.0.") for note in back.notes)


def test_means_with_their_intervals() -> None:
    result = change_export()
    assert result.verdict.startswith("The loss changed with demo 1.3, against demo 1.2: -0.")
    assert result.change is not None
    assert result.change.rule == "mean"
    (shift,) = result.change.shifts
    assert shift.low is not None
    assert shift.high is not None
    assert shift.low < -0.2 < shift.high < 0
    assert float(shift.before) == pytest.approx(2.3, abs=0.1)
    assert "scatter of a launch" in shown(result)


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ((0, 0, 1, 1), "The loss changed with a 1 → 2, whatever the other changes are: 0.0 → 1.0"),
        ((0, 0, 0, 1), "The loss changed only with all of a 1 → 2, b 1 → 2 together: 0.0 → 1.0"),
        ((0, 1, 1, 1), "The loss changed with each of a 1 → 2, b 1 → 2, and with several no furth"),
        ((0, 1, 2, 3), "The loss changed with a 1 → 2 and with b 1 → 2, each by itself: 0.0 → 3.0"),
    ],
)
def test_which_factors(numbers: tuple[float, ...], sentence: str) -> None:
    search = play(lambda place: float(numbers[place]), 4, hypotheses=FACTORS.hypotheses)
    assert told(search, FACTORS).verdict.startswith(sentence)


def test_two_versions_are_named_by_their_difference() -> None:
    key = PrintedNumber("eval.loss", key="eval.loss")
    result = told(play(float, 2), TWO, key)
    assert result.verdict == "eval.loss changed with demo 1 → 2: 0.0 → 1.0 (+1)."
    assert result.metric == "eval.loss"


def test_no_answer_says_why() -> None:
    exactly = told(play(lambda _: 1.0, 6, scatter=SCATTER, how="exactly"))
    assert "No answer: launches of demo 1.0 print different numbers" in exactly.verdict
    assert "--changed mean" in exactly.verdict
    short = told(play(lambda _: 1.0, 6, scatter=SCATTER, most_launches=12))
    assert short.verdict.startswith("Undecided whether the loss changed: ")
    odd = play(float, 8, hypotheses=ABC.hypotheses)
    assert "several of the changes have to do with it" in told(odd, ABC).verdict
    large = iter([1.0, 1e160, 1.1, 3e160])
    found = told(play(lambda _: next(large), 6)).verdict
    assert "demo 1.5 printed 3e+160, which has no mean" in found


ABC = ask("a==1,b==1,c==1", "a==2,b==2,c==2", directory=Path())


def test_what_is_known_is_told_once_it_is() -> None:
    search = ChangeSearch(SIX.hypotheses, 6)
    verdict = ChangeSentences(SIX, search, "The loss")
    assert verdict.known() == []
    for place in (0, 5, 0, 5):
        search.add(place, float(place))
    lines = ChangeSentences(SIX, search, "The loss").known()
    assert lines[0].startswith("Compared exactly")
    assert lines[1] == "The loss changed between both ends."


def test_numbers_have_two_digits_of_their_scatter() -> None:
    assert number_text(0.048)(2.31234) == "2.312"
    assert number_text(3.1)(231.234) == "231.2"
    assert number_text(400.0)(12345.6) == "12346"
    assert number_text(2e-9)(0.5) == "0.5000000000"
