"""The sections of a config that say which models are trained, and with which options."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field, field_validator, model_validator

from torchscale.catalog.model_facts import OPTION_ALIASES, OptionValue
from torchscale.catalog.models import find_model, is_import_path
from torchscale.config.base import Axis, ConfigSection
from torchscale.config.choices import CompileMode


class ModelChoice(ConfigSection):
    """An entry of ``models``: a name with options; plain text where it has none."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(
        description="A catalogued model (`torchscale docs names models`), torchvision:NAME, "
        "timm:NAME, hf:PATH/config.json, or `package.module:function`."
    )

    __pydantic_extra__: dict[str, OptionValue]

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if find_model(name) is None and not is_import_path(name):
            raise ValueError("unknown model")
        return name

    @model_validator(mode="before")
    @classmethod
    def _usual_names(cls, data: Any) -> Any:  # noqa: ANN401 - raw input from YAML
        if isinstance(data, dict):
            return with_usual_names(data)
        return data

    @property
    def options(self) -> dict[str, OptionValue]:
        """The options given beside ``name``."""
        return dict(self.__pydantic_extra__ or {})


def with_usual_names(options: dict[str, Any]) -> dict[str, Any]:
    """Options under the names of the catalog: ``seq_len`` is ``sequence_length``. Given both ways,
    both stay, and the check for unknown options finds the other one."""
    usual = {}
    for key, value in options.items():
        name = OPTION_ALIASES.get(key, key)
        if name in options:
            name = key
        usual[name] = value
    return usual


class ModelSettings(ConfigSection):
    """Options that apply to every model."""

    channels_last: Axis[bool] = Field(
        (False,), description="NHWC memory format for image models; an axis."
    )
    compile: Axis[bool | CompileMode] = Field(
        (False,),
        description="torch.compile the model: true, or a mode (reduce-overhead, max-autotune, …); "
        "compile time is reported separately; an axis.",
    )
    options: dict[str, OptionValue] = Field(
        default_factory=dict,
        description="Options for every model that takes them: image_size, num_classes, "
        "sequence_length.",
    )

    @field_validator("compile")
    @classmethod
    def _none_twice(cls, modes: tuple[bool | CompileMode, ...]) -> tuple[bool | CompileMode, ...]:
        if True in modes and "default" in modes:
            raise ValueError("true and 'default' are the same mode; keep one")
        return modes

    @field_validator("options", mode="before")
    @classmethod
    def _usual_names(cls, options: Any) -> Any:  # noqa: ANN401 - raw input from YAML
        if isinstance(options, dict):
            return with_usual_names(options)
        return options
