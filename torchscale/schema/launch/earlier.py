"""Records of earlier versions of one format, in the form that this version writes."""

from __future__ import annotations

from typing import Any, TypeGuard


def in_current_form(content: object) -> object:
    """The content of a JSON file with what has become columns since: batches of steps and digests
    of ranks, each of which was an object. What is in no such form stays as it is, for the schema to
    refuse."""
    if isinstance(content, list):
        return [in_current_form(item) for item in content]
    if not isinstance(content, dict):
        return content
    converted: dict[str, Any] = {key: in_current_form(value) for key, value in content.items()}
    batches, digests = converted.get("batches"), converted.get("rank_steps")
    if _are_objects(batches):
        converted["batches"] = _columns(batches)
    if _are_objects(digests):
        phases = [
            {key: value for key, value in digest.items() if key != "seconds"} for digest in digests
        ]
        times = [
            {key: value for key, value in digest["seconds"].items() if key != "values"}
            for digest in digests
        ]
        converted["rank_steps"] = {**_columns(times), **_columns(phases)}
    return converted


def _are_objects(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """A list for each key of the first row."""
    return {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}
