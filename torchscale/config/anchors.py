"""Anchors, aliases and merge keys (``&``, ``*``, ``<<``) of other tools' YAML, written out within
bounds."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from torchscale.errors import ConfigError
from torchscale.util.text import one_line


def written_out(root: yaml.Node, name: str, max_values: int, max_depth: int) -> yaml.Node:
    """The same content without anchors: each alias is a copy, and the keys of ``<<`` stand in their
    mapping.

    Args:
        root: What the parser composed; aliases are the nodes that they name.
        name: Name of the file, for messages.
        max_values: Maximum number of keys and values of the result.
        max_depth: Maximum depth of the result.

    Raises:
        ConfigError: it would be larger or deeper, or ``<<`` holds no mapping.
    """
    return _Writer(name, max_values, max_depth).copy(root, 0)


class _Writer:
    def __init__(self, name: str, max_values: int, max_depth: int) -> None:
        self._name = name
        self._max_values = max_values
        self._max_depth = max_depth
        self._values = 0

    def copy(self, node: yaml.Node, depth: int) -> yaml.Node:
        self._values += 1
        if self._values > self._max_values:
            raise self._refusal(
                node, f"its aliases stand for more than {self._max_values:,} keys and values"
            )
        if depth > self._max_depth:  # an alias within its own anchor has no end
            raise self._refusal(node, f"its aliases are nested more than {self._max_depth} deep")
        if isinstance(node, yaml.SequenceNode):
            items = [self.copy(item, depth + 1) for item in node.value]
            return yaml.SequenceNode(node.tag, items, node.start_mark, node.end_mark)
        if isinstance(node, yaml.MappingNode):
            pairs = [
                (self.copy(key, depth + 1), self.copy(value, depth + 1))
                for key, value in self._pairs(node, depth)
            ]
            return yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)
        return node

    def _pairs(self, node: yaml.MappingNode, depth: int) -> list[tuple[yaml.Node, yaml.Node]]:
        """The mapping's own keys in their order, then those merged that it does not have."""
        if depth > self._max_depth:
            raise self._refusal(node, f"its aliases are nested more than {self._max_depth} deep")
        own = [pair for pair in node.value if not _is_merge(pair[0])]
        names = {key.value for key, _ in own if isinstance(key, yaml.ScalarNode)}
        pairs = list(own)
        for key, value in node.value:
            if not _is_merge(key):
                continue
            for merged in self._merged(value):
                for other_key, other in self._pairs(merged, depth + 1):
                    if isinstance(other_key, yaml.ScalarNode) and other_key.value not in names:
                        names.add(other_key.value)
                        pairs.append((other_key, other))
        return pairs

    def _merged(self, value: yaml.Node) -> Iterator[yaml.MappingNode]:
        """The mappings that ``<<`` names; an earlier one wins."""
        candidates = [value]
        if isinstance(value, yaml.SequenceNode):
            candidates = value.value
        for node in candidates:
            self._values += 1
            if not isinstance(node, yaml.MappingNode):
                raise self._refusal(value, "<< expects a mapping, or a list of mappings")
            if self._values > self._max_values:
                raise self._refusal(
                    node, f"its aliases stand for more than {self._max_values:,} keys and values"
                )
            yield node

    def _refusal(self, node: yaml.Node, problem: str) -> ConfigError:
        return ConfigError(
            one_line(f"{self._name}:{node.start_mark.line + 1}: {problem}; not a config"),
        )


def _is_merge(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and key.style is None
