"""The version of torchscale, and the name under which it is installed."""

__version__ = "0.2.0.dev0"
DISTRIBUTION = "torchscale-bench"
"""Name of the distribution as in pyproject.toml. On PyPI, ``torchscale`` is another project:
Transformers, in a package of the same name."""
