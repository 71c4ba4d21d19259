"""Quotas of control groups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.util.control_groups import control_groups, cpu_quota


def group(root: Path, path: str, **files: str) -> None:
    directory = root / "sys/fs/cgroup" / path
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)


def member_of(root: Path, line: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(line + "\n")


def test_version_2_has_the_quota_and_the_time_held_back_in_one_place_each(tmp_path: Path) -> None:
    member_of(tmp_path, "0::/job")
    stat = "usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000\n"
    group(tmp_path, "job", cpu__max="170000 100000", cpu__stat=stat)
    found = cpu_quota(tmp_path)
    assert found.cpus == pytest.approx(1.7)
    assert found.held_back_seconds == pytest.approx(2.5)


def test_version_1_counts_in_nanoseconds(tmp_path: Path) -> None:
    member_of(tmp_path, "4:cpu,cpuacct:/job")
    group(
        tmp_path,
        "cpu/job",
        cpu__cfs_quota_us="170000",
        cpu__cfs_period_us="100000",
        cpu__stat="nr_periods 9\nnr_throttled 3\nthrottled_time 2500000000\n",
    )
    found = cpu_quota(tmp_path)
    assert found.cpus == pytest.approx(1.7)
    assert found.held_back_seconds == pytest.approx(2.5)


def test_the_smallest_quota_of_a_group_and_its_parents_counts(tmp_path: Path) -> None:
    member_of(tmp_path, "0::/jobs/one")
    group(tmp_path, "jobs", cpu__max="50000 100000", cpu__stat="throttled_usec 7000000\n")
    group(tmp_path, "jobs/one", cpu__max="max 100000", cpu__stat="throttled_usec 1000000\n")
    found = cpu_quota(tmp_path)
    assert found.cpus == pytest.approx(0.5)
    assert found.held_back_seconds == pytest.approx(7.0)
    names = [path.name for path in control_groups("cpu", tmp_path)]
    assert names == ["one", "jobs", "cgroup"]


def test_nothing_is_known_without_control_groups(tmp_path: Path) -> None:
    found = cpu_quota(tmp_path)
    assert found.cpus is None
    assert found.held_back_seconds is None
