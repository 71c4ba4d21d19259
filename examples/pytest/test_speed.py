"""An example for the fixture `torchscale`; see docs/pytest.md.

Record a baseline on your machine, then compare with it:

    pytest examples/pytest --torchscale-update-baseline --torchscale-baseline speed.json
    pytest examples/pytest --torchscale-baseline speed.json
"""

import json

DOCUMENT = json.dumps(
    {"cells": [{"model": "resnet50", "samples_per_second": n / 7} for n in range(500)]}
)


def test_reading_is_as_fast_as_before(torchscale):
    torchscale(lambda: json.loads(DOCUMENT))


def test_one_test_may_measure_several_functions(torchscale):
    content = json.loads(DOCUMENT)
    torchscale(lambda: json.dumps(content), name="compact")
    torchscale(lambda: json.dumps(content, indent=1), name="indented", threshold="20%")
