"""What the kernel's log says of the time of an attempt."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from torchscale.features.watch.ends import kernel
from torchscale.features.watch.ends.kernel import KernelNews, kernel_news


def _news(monkeypatch: pytest.MonkeyPatch, *lines: tuple[float, str]) -> KernelNews:
    """Of lines that came so many seconds ago, of an attempt that began 100 s ago."""
    now = time.monotonic()
    records = [f"6,1,{max(0, round((now - ago) * 1e6))},-;{text}" for ago, text in lines]
    monkeypatch.setattr(kernel, "kernel_records", lambda log: iter(records))
    return kernel_news(1_000.0, 1_100.0)


KILL = "Out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB"
IN_GROUP = "Memory cgroup out of memory: Killed process 4712 (pt_main_thread) total-vm:1kB"
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus."


def test_kills_and_xids_of_the_attempt_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    news = _news(monkeypatch, (50.0, KILL), (40.0, IN_GROUP), (30.0, XID), (20.0, "eth0 up"))

    assert news.killed == {4711, 4712}
    assert news.lines[0] == "the kernel killed process 4711 (python): out of memory"
    assert "Xid 79 of the GPU at 0000:9b:00" in news.lines[2]
    assert len(news.lines) == 3


def test_what_came_before_the_attempt_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _news(monkeypatch, (110.0, KILL), (120.0, XID)) == KernelNews()


def test_a_log_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert kernel_news(0.0, 1.0, tmp_path / "none") == KernelNews()
