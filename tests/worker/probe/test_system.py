"""Limits and settings as the probe reads them, from trees of files like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.worker.probe.system import system_facts

GIB = 2**30


def write(root: Path, **files: str) -> Path:
    """Files by path, with ``__`` for the separator."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_this_machine() -> None:
    facts = system_facts()
    assert facts.memory_available_bytes is not None
    assert facts.memory_available_bytes > 0
    assert (facts.temporary_error, facts.home_error) == (None, None)
    assert facts.time is not None


def test_the_tightest_limit_of_nested_groups_counts(tmp_path: Path) -> None:
    write(tmp_path, proc__self__cgroup="0::/job/step")
    group = tmp_path / "sys/fs/cgroup/job"
    (group / "step").mkdir(parents=True)
    (group / "memory.max").write_text("1000000\n")
    (group / "memory.current").write_text("400000\n")
    (group / "step" / "memory.max").write_text("max\n")
    (group / "step" / "cpu.max").write_text("250000 100000\n")
    (group / "cpu.max").write_text("max 100000\n")
    (group / "pids.max").write_text("77\n")
    facts = system_facts(tmp_path)
    assert (facts.memory_limit_bytes, facts.memory_available_bytes) == (1_000_000, 600_000)
    assert (facts.cpu_limit, facts.tasks_limit) == (2.5, 77)


def test_limits_of_control_groups_of_version_1(tmp_path: Path) -> None:
    write(tmp_path, proc__self__cgroup="4:memory:/job\n1:cpu,cpuacct:/job")
    for controller in ("memory", "cpu"):
        (tmp_path / "sys/fs/cgroup" / controller / "job").mkdir(parents=True)
    memory = tmp_path / "sys/fs/cgroup/memory"
    (memory / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (memory / "job" / "memory.limit_in_bytes").write_text(f"{4096}\n")
    (memory / "job" / "memory.usage_in_bytes").write_text("96\n")
    (tmp_path / "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us").write_text("150000\n")
    (tmp_path / "sys/fs/cgroup/cpu/job/cpu.cfs_period_us").write_text("100000\n")
    facts = system_facts(tmp_path)
    assert (facts.memory_limit_bytes, facts.memory_available_bytes, facts.cpu_limit) == (
        4096,
        4000,
        1.5,
    )


def test_no_limits(tmp_path: Path) -> None:
    facts = system_facts(write(tmp_path, proc__self__cgroup="0::/"))
    assert (facts.memory_limit_bytes, facts.cpu_limit) == (None, None)
    assert (facts.local_ports, facts.governors, facts.huge_page_defrag, facts.numa_balancing) == (
        None,
        (),
        None,
        None,
    )


def test_settings_of_the_kernel(tmp_path: Path) -> None:
    facts = system_facts(
        write(
            tmp_path,
            proc__sys__net__ipv4__ip_local_port_range="32768\t60999",
            proc__sys__kernel__numa_balancing="1",
            sys__kernel__mm__transparent_hugepage__defrag="always defer [madvise] never",
            sys__devices__system__cpu__cpu0__cpufreq__scaling_governor="powersave",
            sys__devices__system__cpu__cpu0__cpufreq__energy_performance_preference="balance_power",
            sys__devices__system__cpu__cpu1__cpufreq__scaling_governor="performance",
        )
    )
    assert (facts.local_ports, facts.numa_balancing, facts.huge_page_defrag) == (
        28_232,
        True,
        "madvise",
    )
    assert facts.governors == ("performance", "powersave (balance_power)")


def test_what_the_environment_names_and_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    monkeypatch.setenv("HOME", "/proc/1")
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8")
    facts = system_facts()
    assert facts.temporary == str(tmp_path / "gone")
    assert facts.temporary_error == "No such file or directory"
    assert facts.temporary_free_bytes is None
    assert facts.home_error is not None
    assert facts.locale_error == "xx_YY.UTF-8: unsupported locale setting"
