"""The door between the core and the features.

The core imports no feature. Where it needs something that a feature has, it names a :class:`Slot`
with the form of what it asks for, and :data:`OFFERS` says which features offer it and where. What
is offered is imported when the core asks for it. A few offers are of the core itself: what several
features have done with a run, and need not know.

A feature is added by a folder in ``features/`` and its lines here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Generic, TypeVar, cast

T = TypeVar("T")

OFFERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "cell profiler": {
            "trace": "features.trace.cell_profiler:sweep_profiler",
        },
        "commands": {
            "validate": "features.validate.cli.validate",
            "watch": "features.watch.cli.watch",
            "profile": "features.trace.cli.profile",
            "autopsy": "features.watch.cli.autopsy",
            "compare": "features.compare.cli.compare",
            "history": "features.compare.cli.history",
            "bisect": "features.bisect.cli.bisect",
            "predict": "features.decide.cli.predict",
            "tune": "features.decide.cli.tune",
            "submit": "features.cluster.cli.submit",
            "export": "features.export.cli.export",
            "measure": "features.machine.cli.measure",
        },
        "commands of runs": {
            "baselines": "features.compare.cli.baselines:baselines",
        },
        "derived files": {
            "summary.csv": "measure.summary_file:write_summary_file",
        },
        "first screens": {
            "watch": "features.watch.first_screen",
        },
        "copies of addresses": {
            "storage": "store.storage.fetch:fetch_all",
        },
        "copies of results": {
            "storage": "features.export.copies:copy_results",
        },
        "figures of jobs": {
            "watch": "features.watch.document:watched_figures",
        },
        "folders": {
            "analysis.json": "features.trace.report:listed_recording",
            "watch.json": "features.watch.listed:listed_job",
            "roles.json": "features.watch.roles:listed_roles",
        },
        "foreign configs": {
            "other tools": "features.imports.read:read_translation",
        },
        "foreign options": {
            "measure collectives": "features.imports.nccl_flags:refuse_nccl_flags",
        },
        "launches of commands": {
            "watch": "features.watch.job.command_launches:command_launches",
        },
        "hangs": {
            "autopsy": "features.watch.hang.evidence",
        },
        "kinds, analysis": {
            "training": "analysis.kinds.training",
            "checkpoint": "features.machine.checkpoint.summary",
            "collectives": "features.machine.collectives.summary",
            "hardware": "features.machine.hardware.summary",
            "memory": "features.machine.memory.summary",
        },
        "kinds, launch": {
            "training": "launch.kinds.training",
            "checkpoint": "features.machine.checkpoint.launch",
            "collectives": "features.machine.collectives.launch",
            "hardware": "features.machine.hardware.launch",
            "memory": "features.machine.memory.launch",
        },
        "kinds, plan": {
            "training": "plan.kinds.training",
            "checkpoint": "features.machine.checkpoint.plan",
            "collectives": "features.machine.collectives.plan",
            "hardware": "features.machine.hardware.plan",
            "memory": "features.machine.memory.plan",
        },
        "kinds, report": {
            "training": "report.kinds.training",
            "checkpoint": "features.machine.checkpoint.report",
            "collectives": "features.machine.collectives.report",
            "hardware": "features.machine.hardware.report",
            "memory": "features.machine.memory.report",
        },
        "live pages": {
            "watch": "features.watch.live_page:JobPage",
            "roles": "features.watch.roles_report:RolesPage",
        },
        "nodes": {
            "cluster": "features.cluster.sweep:join_cluster",
        },
        "nodes of plans": {
            "cluster": "features.cluster.engines.choice:describe_choice",
        },
        "node roles": {
            "sweep": "features.cluster.engines.sweep:prepare_sweep",
            "check": "features.validate.fleet.run:prepare_check",
        },
        "recorded steps": {
            "trace": "features.trace.recorded_steps",
        },
        "reports": {
            "analysis.json": "features.trace.report:recording_report",
            "watch.json": "features.watch.report:job_report",
            "roles.json": "features.watch.roles_report:roles_report",
        },
        "reports of runs": {
            "fleet.json": "features.validate.report:fleet_report",
            "acceptance.json": "features.validate.report:acceptance_report",
        },
        "runs again": {
            "benchmark": "measure.benchmark:benchmark",
        },
        "terminals of sweeps": {
            "cli": "cli.sweep_output:SWEEP_TERMINAL",
        },
        "schemas": {
            "report": "schema.exports.report:DOCUMENT",
            "machine": "schema.exports.machine:DOCUMENT",
            "max-batch": "schema.exports.search:DOCUMENT",
            "profile": "schema.profiles.analysis:DOCUMENT",
            "validate": "schema.node.validation:DOCUMENT",
            "fleet": "schema.node.fleet:DOCUMENT",
            "autopsy": "schema.launch.hang:DOCUMENT",
            "baseline": "schema.run.result_set:DOCUMENT",
            "compare": "features.compare.export_schema:DOCUMENT",
            "peers": "features.compare.peers_schema:DOCUMENT",
            "predict": "features.decide.forecast.export_schema:DOCUMENT",
            "history": "features.compare.history.export_schema:DOCUMENT",
            "tune": "features.decide.tune.export_schema:DOCUMENT",
            "bisect": "features.bisect.export_schema:DOCUMENT",
        },
        "scripts": {
            "watch": "features.watch.job.script_launch:run_script",
        },
        "sections of kinds": {
            "training": "report.sections.training:sections",
            "checkpoint": "features.machine.checkpoint.section:sections",
            "collectives": "features.machine.collectives.section:sections",
            "hardware": "features.machine.hardware.section:sections",
            "memory": "features.machine.memory.section:sections",
        },
        "sections of training": {
            "watch": "features.watch.section:watched_section",
        },
        "sweep exports": {
            "export": "features.export.cell_exports:CellExports",
        },
        "sweep notes": {
            "compare": "features.compare.previous:against_previous",
        },
    }
)
"""Slot → name → what is offered: a module of this package, or an attribute of one as
``module:attribute``."""


class Slot(Generic[T]):
    """A place where features add to the core. Who names it says what must be offered: ``T`` is its
    form."""

    def __init__(self, name: str) -> None:
        """``name``: as in :data:`OFFERS`."""
        self._offers = OFFERS[name]

    def __contains__(self, key: str) -> bool:
        return key in self._offers

    def __iter__(self) -> Iterator[str]:
        """The names, in the order of the table; nothing is imported."""
        return iter(self._offers)

    def __getitem__(self, key: str) -> T:
        """What is offered under a name, imported now.

        Raises:
            KeyError: no feature offers it.
        """
        module, _, attribute = self._offers[key].partition(":")
        offered: object = import_module(f"{__package__}.{module}")
        if attribute:
            offered = getattr(offered, attribute)
        return cast(T, offered)
