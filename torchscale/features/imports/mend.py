"""A translation that loads: what the config's own loader refuses is left out with its reason."""

from __future__ import annotations

from torchscale.catalog.models import find_model
from torchscale.config.arguments import DEFAULT_BATCH_SIZE
from torchscale.config.load import config_problems, load_experiment_from
from torchscale.config.messages import dotted_keys
from torchscale.config.script import ScriptChoice
from torchscale.config.sections.models import ModelChoice
from torchscale.config.strategies.base import StrategyBase
from torchscale.config.strategy import strategy_label
from torchscale.config.translate import Translation, value_of
from torchscale.config.yaml_reader import Data, KeyPath, format_path
from torchscale.features.imports.names import PLACEHOLDER_MODEL
from torchscale.util.text import one_line

_REQUIRED = "this key is required"
_KEEP_ONE = "; keep one"


def mend(translation: Translation) -> None:
    """Change ``translation.data`` until the loader takes it, and say what was changed.

    A value that the loader refuses is left out. Without a model a placeholder stands in its place,
    and the translation does not run yet.
    """
    while problems := config_problems(translation.data):
        path, text = problems[0]
        if text == _REQUIRED and path == ("models",):
            _put_placeholder(translation)
        elif text == _REQUIRED and path == ("batch_sizes",):
            translation.data["batch_sizes"] = [DEFAULT_BATCH_SIZE]
            translation.notes.append(
                f"batch_sizes: no size is given; {DEFAULT_BATCH_SIZE} is torchscale's own choice"
            )
        else:
            _leave_out(translation, path, text)
    _check_strategies(translation)


def _put_placeholder(translation: Translation) -> None:
    """``models`` has none: the reasons of those that were left out say why."""
    translation.data["models"] = [PLACEHOLDER_MODEL]
    unknown = [
        reason for reason in translation.left_out.values() if reason.startswith("unknown model")
    ]
    why = "; ".join(dict.fromkeys(unknown)) or _no_model(translation.suite)
    translation.missing.append(f"{why}; put yours in the place of {PLACEHOLDER_MODEL}")


def _no_model(suite: str) -> str:
    if suite:
        return f"this config of {suite} names no model"
    return "it names no model"


def _leave_out(translation: Translation, path: KeyPath, text: str) -> None:
    """Take out what the loader names; the deepest part of its path that is there."""
    here: Data = translation.data
    steps: list[tuple[dict[str, Data] | list[Data], str | int]] = []
    for part in path:
        if isinstance(here, dict) and part in here:
            steps.append((here, part))
            here = here[str(part)]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            steps.append((here, part))
            here = here[part]
        else:
            break
    if path[:1] == ("models",):
        steps = steps[:2]  # an entry without its name or option is another model
    if not steps:  # of the config as a whole: nothing smaller can be left out
        translation.data.clear()
    while steps:
        above, part = steps.pop()
        del above[part]  # type: ignore[arg-type] # a key of a mapping or an index of a list
        if above:
            break
    if text.endswith(_KEEP_ONE):
        named = [key for key in dotted_keys() if "." in key and key in text]
        kept = [key for key in named if value_of(translation.data, key) is not None]
        text = f"{text.removesuffix(_KEEP_ONE)}; kept: {', '.join(kept)}"
    key = format_path(path)
    source = next((old for old, new in translation.renamed.items() if new == key), key)
    translation.renamed.pop(source, None)
    translation.left_out.setdefault(one_line(source), one_line(text))


def _check_strategies(translation: Translation) -> None:
    """Say so where no model and count of GPUs fits any strategy: all cells would be skipped."""
    experiment = load_experiment_from(translation.data)
    if not experiment.models or experiment.gpu_counts == "auto":
        return
    refusals = [
        _refusal(strategy, int(count), choice)
        for strategy in experiment.parallel.strategy
        for count in experiment.gpu_counts
        for choice in experiment.models
    ]
    if all(refusals):
        translation.missing.append(one_line(refusals[0]))


def _refusal(strategy: StrategyBase, count: int, choice: ModelChoice | ScriptChoice) -> str:
    """Why these devices cannot share this model so; empty where they can, or it is not known."""
    try:
        strategy.degrees(count)
    except ValueError as error:
        return f"{strategy_label(strategy)}: {error}"
    facts = find_model(choice.name) if isinstance(choice, ModelChoice) else None
    if facts is None or count == 1:
        return ""
    lacking = [name for name in strategy.splits if name not in facts.splits]
    if not lacking:
        return ""
    return f"{facts.name} does not support {' and '.join(lacking)} parallelism"
