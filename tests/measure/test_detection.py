from __future__ import annotations

import subprocess
import sys

import pytest

from torchscale.launch.machine import detect_machine
from torchscale.measure.context import find_machine
from torchscale.measure.detection import start_detection
from torchscale.observer import SILENT


@pytest.mark.slow
def test_the_machine_of_a_detection_is_the_one_that_is_detected_by_itself() -> None:
    with start_detection() as detection:
        machine = find_machine(SILENT, detection)
    assert machine == detect_machine()


@pytest.mark.slow
def test_it_is_started_before_anything_that_measures_is_imported() -> None:
    code = "import sys, torchscale.measure.detection; print(*(name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modules = done.stdout.split()
    assert "torchscale.launch.machine" in modules
    assert not {"numpy", "torchscale.measure.context", "torchscale.analysis"} & set(modules)
