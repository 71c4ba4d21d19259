"""The table of strategies, and what is said of them."""

from __future__ import annotations

from typing import Any

from tests.features.decide.tune.test_tables import GAIN, printed, trial, tuning_export
from torchscale.features.decide.tune.export_schema import (
    ChangeExport,
    RatioExport,
    RunnerUpExport,
    StrategyExport,
    TuningExport,
)

FSDP = ChangeExport(axis="strategy", setting="parallel.strategy", value="fsdp", note="")
BEHIND = RatioExport(ratio=0.9, low=0.88, high=0.92, launches=3)
EQUAL = RatioExport(ratio=0.995, low=0.97, high=1.02, launches=3)


def strategy(name: str, **values: Any) -> StrategyExport:
    defaults: dict[str, Any] = {
        "strategy": name,
        "config": {"name": name},
        "predicted_bytes": 3 * 2**30,
        "predicted_at_least": False,
        "state": "slower",
        "reason": "",
        "throughput": 100.0,
        "tokens_per_second": 6400.0,
        "launches": 3,
        "against_fastest": BEHIND,
    }
    return StrategyExport(**{**defaults, **values})


def unlaunched(name: str, state: str, reason: str) -> StrategyExport:
    nothing = {"throughput": None, "tokens_per_second": None, "launches": 0}
    return strategy(name, state=state, reason=reason, against_fastest=None, **nothing)


FOUND = (
    strategy("ddp"),
    strategy("zero1", state="tie", throughput=110.0, against_fastest=EQUAL),
    strategy("fsdp", state="fastest", throughput=111.0, against_fastest=None),
    strategy(
        "tensor",
        predicted_bytes=2**30,
        predicted_at_least=True,
        throughput=None,
        tokens_per_second=None,
        state="failed",
        reason="crashed: it failed",
        launches=1,
        against_fastest=None,
    ),
    unlaunched("fsdp shard=2", "left out", "predicted to take 9 GiB a rank, of 4 GiB"),
    *(unlaunched(f"ep degree={degree}", "left out", "no experts") for degree in (2, 4, 8, 16, 32)),
    unlaunched("hybrid shard=2 tensor=2", "not launched", "its parts are slow"),
)


def strategies_export(**values: Any) -> TuningExport:
    """A search that found FSDP2 faster than DDP; one strategy of each state."""
    defaults: dict[str, Any] = {
        "winner": (FSDP,),
        "contributions": (),
        "interaction": None,
        "exposed_communication": None,
        "predicted_exposed_seconds": {},
        "skipped": {},
        "trials": (trial(), trial(FSDP, gain=GAIN, verdict="faster")),
        "strategies": FOUND,
        "start_strategy": "ddp",
        "rank_memory_bytes": 4 * 2**30,
        "exhaustive_launches": 15,
        "runner_up": RunnerUpExport(changes=(FSDP,), gain=GAIN),
    }
    return tuning_export(**{**defaults, **values})


def test_launched_strategies_are_rows_the_fastest_first() -> None:
    lines = printed(strategies_export()).splitlines()
    assert lines[2].split() == [
        "strategy",
        "memory",
        "samples/s",
        "tokens/s",
        "against",
        "the",
        "fastest",
        "launches",
        "result",
    ]
    assert [line.split()[0] for line in lines[3:7]] == ["fsdp", "zero1", "ddp", "tensor"]
    assert "6,400" in lines[3]
    assert "-10.0 % (-12.0 to -8.0 %)" in lines[5]
    assert "≥ 1" in lines[6]
    assert lines[6].endswith("crashed")
    assert "tensor: crashed: it failed" in lines


def test_what_was_not_launched_is_named_with_its_reason() -> None:
    text = printed(strategies_export())
    assert "fsdp shard=2: left out: predicted to take 9 GiB a rank, of 4 GiB" in text
    assert "ep degree=2, ep degree=4, ep degree=8 and 2 more: left out: no experts" in text
    assert "hybrid shard=2 tensor=2: not launched: its parts are slow" in text
    assert "there are 4.00 GiB" in text


def test_a_tie_is_said_and_which_is_taken() -> None:
    text = printed(strategies_export())
    assert "Fastest: fsdp: +10.0 % (+8.0 to +12.0 %) over ddp, verified" in text
    assert "A tie, as far as these launches tell (95 %): zero1 -0.5 % (-3.0 to +2.0 %)." in text
    assert "fsdp is the simplest of those that are expected within 1 %" in text
    stays = printed(strategies_export(winner=(), verified=None, better=False, config=None))
    assert "ddp stays, which no launch shows to be slower" in stays
    assert "Next to ddp: fsdp: +10.0 % (+8.0 to +12.0 %), in 5 alternating launches" in stays
    far = RatioExport(ratio=0.8, low=0.5, high=1.3, launches=1)
    many = [strategy(f"s{number}", state="tie", against_fastest=far) for number in range(4)]
    assert "zero1 -0.5 % (-3.0 to +2.0 %), s0 -20.0 % (-50.0 to +30.0 %), s1" in printed(
        strategies_export(strategies=(*many, *FOUND))
    )
    assert "and 2 more. fsdp is" in printed(strategies_export(strategies=(*many, *FOUND)))
    alone = tuple(one for one in FOUND if one.state != "tie")
    assert "A tie" not in printed(strategies_export(strategies=alone))


def test_the_effort_is_held_against_an_exhaustive_search() -> None:
    assert "10 launches; three of each of the 5 that can run would be 15." in printed(
        strategies_export()
    )
    one = printed(strategies_export(trials=(trial(launches=1),)))
    assert "1 launch; three of each" in one


def test_samples_without_tokens_have_no_column_of_them() -> None:
    images = tuple(one.model_copy(update={"tokens_per_second": None}) for one in FOUND)
    assert "tokens/s" not in printed(strategies_export(strategies=images))


def test_a_config_that_does_not_fit_is_said() -> None:
    text = printed(
        strategies_export(
            moved_start="ddp: predicted to take 9 GiB a rank, of 4 GiB", start_strategy="zero1"
        )
    )
    assert (
        "The config's own strategy does not run here (ddp: predicted to take 9 GiB a rank, of "
        "4 GiB); the others are compared with zero1." in text
    )


def test_other_axes_have_their_table_too() -> None:
    fused = ChangeExport(axis="fused", setting="training.fused", value="true", note="")
    assert "against the start" not in printed(strategies_export())
    found = strategies_export(trials=(trial(), trial(fused, gain=GAIN)))
    assert "against the start" in printed(found)
