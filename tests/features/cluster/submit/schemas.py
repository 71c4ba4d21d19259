"""What Kubernetes says of its objects, as far as a schema can: unknown keys, wrong types, missing
fields.

Rules in CEL (``x-kubernetes-validations``), admission webhooks and defaults are not part of it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

DATA = Path(__file__).parents[3] / "data" / "kubernetes"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_KINDS = {
    ("v1", "ConfigMap"): "io.k8s.api.core.v1.ConfigMap",
    ("v1", "Service"): "io.k8s.api.core.v1.Service",
    ("batch/v1", "Job"): "io.k8s.api.batch.v1.Job",
}


def problems(manifest: dict[str, Any]) -> list[str]:
    """``path: what is wrong`` for everything that the schema of this kind refuses."""
    kind = (manifest.get("apiVersion"), manifest.get("kind"))
    validator = _validator(*(str(part) for part in kind))
    return sorted(
        f"{'.'.join(str(part) for part in error.absolute_path)}: {error.message[:200]}"
        for error in validator.iter_errors(manifest)
    )


@cache
def _validator(api_version: str, kind: str) -> Draft202012Validator:
    definitions = json.loads((DATA / "kubernetes-1.36.json").read_text())["definitions"]
    if (api_version, kind) == ("trainer.kubeflow.org/v1alpha1", "TrainJob"):
        schema = json.loads((DATA / "trainjob-2.3.0.json").read_text())
        # A CRD leaves metadata to the API server, which knows what is in it.
        schema["properties"]["metadata"] = {"$ref": f"#/definitions/{_META}"}
    else:
        schema = {"$ref": f"#/definitions/{_KINDS[api_version, kind]}"}
    schema = _strict(schema) | {
        "definitions": {name: _strict(value) for name, value in definitions.items()}
    }
    schema["required"] = [*schema.get("required", []), "apiVersion", "kind", "metadata"]
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def _strict(schema: Any) -> Any:
    """The schema with unknown keys refused, as an API server does with ``fieldValidation=Strict``,
    kubectl's default; and with Kubernetes' two types that are a number or text."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    is_object = isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema
    if (
        is_object
        and schema.get("type") == "object"
        and "x-kubernetes-preserve-unknown-fields" not in schema
    ):
        strict["additionalProperties"] = False
    if schema.get("format") == "int-or-string":
        strict["type"] = ["string", "integer"]
    return strict
