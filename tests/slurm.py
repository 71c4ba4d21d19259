"""A real Slurm of two or more nodes on one machine, from Debian's packages: a controller, and one
``slurmd`` for each network namespace of :mod:`tests.network`, where the names of the nodes resolve.
Its files are in one directory, its munge has a socket and a key of its own, and all of it ends with
the context, or with the process that made it.

``python -m tests.slurm sinfo`` runs a command on the first node of such a cluster.
"""

from __future__ import annotations

import getpass
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests import network

START_SECONDS = 60
"""Controller and nodes are up within 2 s on an idle machine."""
_END_SECONDS = 10
_COMMAND_SECONDS = 20
_CPUS = 2
_NEEDED = ("slurmctld", "slurmd", "sbatch", "srun", "munged")

# proctrack/linuxproc and task/none need no control groups, which containers have not. A requeued
# job may start again once its credential has expired, after 120 s by default. KillWait, between
# TERM and KILL, is 30 s by default.
_CONFIG = """\
ClusterName=test
SlurmctldHost={first}({address})
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket,cred_expire=5
SlurmctldPort=6817
SlurmdPort=6818
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=0
MpiDefault=none
KillWait={kill_wait}
SlurmdTimeout=15
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running cluster.

    Attributes:
        nodes: Its namespaces; the controller and every command run on the first.
        links: Which can be cut.
        directory: Its configuration, state and logs.
        environment: Of every command and daemon.
    """

    nodes: tuple[network.Node, ...]
    links: network.Cluster
    directory: Path
    environment: Mapping[str, str]

    def argv(self, node: network.Node, *command: str) -> list[str]:
        """``command``, to be run on this node, where the names of all nodes resolve."""
        return node.argv(*self._with_names(), *command)

    def enter(self, node: network.Node) -> list[str]:
        """What goes before a command on this node that may use all cores."""
        return [*node.enter, *self._with_names()]

    def _with_names(self) -> list[str]:
        """A mount namespace with a file of its own as ``/etc/hosts``."""
        return network.with_names(self.directory / "hosts")

    def run(self, *command: str, directory: Path | None = None) -> str:
        """What a command of Slurm prints.

        Raises:
            RuntimeError: it fails.
        """
        done = subprocess.run(
            self.argv(self.nodes[0], *command),
            cwd=directory or self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def submit(self, script: Path, *options: str) -> str:
        """Submit a batch script, to run in its own directory. Returns the job's number."""
        return self.run("sbatch", "--parsable", *options, str(script), directory=script.parent)

    def state(self, job: str) -> str:
        """``PENDING``, ``RUNNING``, ``COMPLETED``, ``FAILED``, ``CANCELLED``, ``TIMEOUT``, … of a
        job."""
        return self._job(job)["JobState"]

    def restarts(self, job: str) -> int:
        """How often a job was requeued."""
        return int(self._job(job)["Restarts"])

    def wait(self, job: str, *states: str, seconds: float) -> str:
        """Wait until a job is in one of these states. Returns it.

        Raises:
            TimeoutError: it is in none of them within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while (state := self.state(job)) not in states:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"job {job} is {state} after {seconds:g} s, not {' or '.join(states)}"
                )
            time.sleep(0.2)
        return state

    def logs(self) -> str:
        """The last lines of every daemon."""
        paths = sorted(self.directory.glob("*.log"))
        return "\n".join(
            f"{path.name}: {line}" for path in paths for line in path.read_text().splitlines()[-15:]
        )

    def _job(self, job: str) -> dict[str, str]:
        fields = (item.partition("=") for item in self.run("scontrol", "show", "job", job).split())
        return {name: value for name, _, value in fields}


@contextmanager
def slurm(
    nodes: int = 2,
    *,
    kill_wait_seconds: int = 15,
    extra_env: Mapping[str, str] | None = None,
    settings: Sequence[str] = (),
    private: Path | None = None,
) -> Iterator[Slurm]:
    """A cluster whose nodes are idle. Jobs that are left at the end are cancelled.

    Args:
        nodes: How many.
        kill_wait_seconds: Between TERM and KILL of a job that is cancelled or requeued, or reaches
            its time limit.
        extra_env: Variables for daemons, and so for whatever they start.
        settings: Further lines of ``slurm.conf``.
        private: A directory that each node but the first sees empty.

    Raises:
        FileNotFoundError: Slurm or munge is not installed.
        PermissionError: this user may make no namespaces, or is not root.
        RuntimeError: it does not come up.
    """
    for name in _NEEDED:
        network.tool(name)
    if os.geteuid() != 0:
        raise PermissionError(
            "slurmd starts jobs as their users, which root alone may do; this is "
            f"{getpass.getuser()}"
        )
    with ExitStack() as stack:
        made = stack.enter_context(network.cluster(nodes))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        environment = {
            **os.environ,
            **(extra_env or {}),
            "SLURM_CONF": str(directory / "slurm.conf"),
        }
        cluster = Slurm(tuple(made.nodes), made, directory, environment)
        stack.callback(_kill_all, cluster)
        _configure(cluster, kill_wait_seconds, settings)
        start = _Starter(cluster, stack)
        # A directory that only its owner may enter is refused as a place for the socket unless
        # forced.
        files = [f"--{name}-file={directory / name}" for name in ("pid", "log", "seed")]
        socket, key = directory / "munge.socket", directory / "munge.key"
        start(
            "munged",
            (),
            [
                "munged",
                "--foreground",
                "--force",
                f"--socket={socket}",
                f"--key-file={key}",
                *files,
            ],
        )
        _wait(socket.exists, "munged", cluster)
        start("slurmctld", cluster.enter(cluster.nodes[0]), ["slurmctld", "-D", "-c"])
        for node in cluster.nodes:
            enter = cluster.argv(node)
            if private is not None and node.number > 0:
                script = 'mount -t tmpfs none "$0" && exec "$@"'
                enter += [network.tool("unshare"), "-m", "sh", "-c", script, str(private)]
            start(f"slurmd-{node.hostname}", enter, ["slurmd", "-D", "-N", node.hostname])
        _wait(lambda: _idle_nodes(cluster) == nodes, "Slurm", cluster)
        try:
            yield cluster
        finally:
            _cancel_all(cluster)


class _Starter:
    """Starts daemons in the foreground, each with a log, and ends them with the stack."""

    def __init__(self, cluster: Slurm, stack: ExitStack) -> None:
        self._cluster, self._stack = cluster, stack

    def __call__(self, name: str, enter: Sequence[str], command: Sequence[str]) -> None:
        log = self._stack.enter_context((self._cluster.directory / f"{name}.log").open("wb"))
        # It is told to end when this process is killed, which then can end nothing.
        argv = [
            *enter,
            network.tool("setpriv"),
            "--pdeathsig",
            "TERM",
            network.tool(command[0]),
            *command[1:],
        ]
        process = subprocess.Popen(
            argv, env=self._cluster.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        self._stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_END_SECONDS)


def _configure(cluster: Slurm, kill_wait_seconds: int, settings: Sequence[str]) -> None:
    key = cluster.directory / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    first = cluster.nodes[0]
    lines = [
        f"NodeName={node.hostname} NodeHostname={node.hostname} NodeAddr={node.address} "
        f"CPUs={_CPUS} State=UNKNOWN"
        for node in cluster.nodes
    ]
    text = _CONFIG.format(
        first=first.hostname,
        address=first.address,
        user=getpass.getuser(),
        directory=cluster.directory,
        kill_wait=kill_wait_seconds,
        nodes="\n".join(lines),
    )
    network.write_names(cluster.nodes, cluster.directory / "hosts")
    (cluster.directory / "slurm.conf").write_text("\n".join([text, *settings, ""]))


def _idle_nodes(cluster: Slurm) -> int:
    try:
        return cluster.run("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").count(
            "n"
        )
    except RuntimeError:
        return 0  # the controller is not up yet


def _wait(condition: Callable[[], bool], what: str, cluster: Slurm) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"{what} did not come up within {START_SECONDS} s:\n{cluster.logs()}"
            )
        time.sleep(0.1)


def _cancel_all(cluster: Slurm) -> None:
    cluster.run("scancel", f"--user={getpass.getuser()}")
    _wait(lambda: not cluster.run("squeue", "--noheader"), "the end of all jobs", cluster)


def _kill_all(cluster: Slurm) -> None:
    """End what is left of daemons and jobs, as after a controller that ends no job any more."""
    mark, left = cluster.environment["SLURM_CONF"], []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("SLURM_CONF") == mark:
                process.kill()
                left.append(process)
        except (psutil.Error, OSError):  # it has ended, or is of another user
            continue
    psutil.wait_procs(left, _END_SECONDS)


def main() -> int:
    """Run a command on the first node of a cluster of two. Returns its exit code."""
    with slurm() as cluster:
        argv = cluster.argv(cluster.nodes[0], *sys.argv[1:])
        return subprocess.run(argv, env=cluster.environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
