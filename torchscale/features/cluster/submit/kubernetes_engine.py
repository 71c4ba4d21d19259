"""A benchmark on Kubernetes: manifests for kubectl, and the job and its pods as it shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from torchscale.config.dump import to_yaml
from torchscale.config.experiment import Experiment
from torchscale.errors import ExitCode, UsageError
from torchscale.features.cluster.submit import kubectl
from torchscale.features.cluster.submit.cluster_job import ClusterJob
from torchscale.features.cluster.submit.engine import (
    SubmitOptions,
    SubmittedJob,
    SubmittedState,
    check_counts,
    job_name,
    take_secrets,
)
from torchscale.features.cluster.submit.manifests import indexed_job, secret_of, train_job
from torchscale.features.cluster.submit.manifests import to_yaml as manifests_to_yaml
from torchscale.features.cluster.submit.pod_job import (
    PodJob,
    check_name,
    check_pod_job,
    parse_counts,
    parse_pairs,
    parse_time,
)
from torchscale.features.cluster.submit.pod_parts import INSTANCE_LABEL, Manifest
from torchscale.util.optional import optional

_DEFAULT_SECRET = "torchscale-token"  # noqa: S105 - the name of the Secret
_DEFAULT_GPU_RESOURCE = "nvidia.com/gpu"
_DEFAULT_RUNTIME = "torch-distributed"
"""What Kubeflow Trainer installs for torch."""
_DEFAULT_RESTARTS = 3
"""Number of restarts of each node: enough for an eviction or two, and few enough for a job that
fails each time."""
_MAX_RESTARTS = 100


def pod_job(experiment: Experiment, options: SubmitOptions, output_dir: Path | None) -> PodJob:
    """What the manifests of an experiment are made from.

    Raises:
        UsageError: an option is missing or wrong.
    """
    job, kubernetes = options.job, options.kubernetes
    check_counts(job)
    if job.image is None:
        raise UsageError(
            "--image is missing: the image that the pods run",
            hint="see `torchscale docs kubernetes`",
        )
    if kubernetes.results_claim is None:
        raise UsageError(
            "--results-claim is missing: the PersistentVolumeClaim that keeps the results",
            hint="`kubectl get pvc` lists them; all nodes must be able to mount it",
        )
    user = kubernetes.run_as_user
    if user is not None and not 1 <= user < 2**31:
        raise UsageError(
            f"--run-as-user {user}: expected a user's number from 1",
            hint="leave it out for the image's",
        )
    variables = parse_pairs("--env", kubernetes.env, "--env NCCL_DEBUG=INFO")
    experiment, variables, secrets = take_secrets(experiment, variables)
    pod = PodJob(
        name=job_name(experiment, job.job_name),
        config=to_yaml(experiment),
        directory=PurePosixPath(
            output_dir if output_dir is not None else experiment.experiment_name
        ),
        image=job.image,
        nodes=job.nodes,
        results_claim=kubernetes.results_claim,
        token_secret=kubernetes.token_secret
        if kubernetes.token_secret is not None
        else _DEFAULT_SECRET,
        namespace=kubernetes.namespace,
        gpus_per_node=job.gpus_per_node,
        cpus_per_node=job.cpus_per_task,
        gpu_resource=kubernetes.gpu_resource
        if kubernetes.gpu_resource is not None
        else _DEFAULT_GPU_RESOURCE,
        rdma=parse_counts("--rdma", kubernetes.rdma, "--rdma rdma/hca_shared_devices_a=1"),
        shm_size=kubernetes.shm_size,
        env=variables,
        secrets=secrets,
        node_selector=parse_pairs(
            "--node-selector", kubernetes.node_selector, "--node-selector zone=a"
        ),
        run_as_user=user,
        deadline_seconds=optional(parse_time, job.time),
    )
    check_pod_job(pod)
    return pod


def _namespace_option(job: PodJob) -> str:
    """What kubectl's commands take where the job is not in the default namespace."""
    if job.namespace is None:
        return ""
    return f" --namespace {job.namespace}"


class KubernetesEngine:
    """Renders manifests, hands them to kubectl, and asks it for the job and its pods."""

    scheduler = "kubectl"

    def __init__(
        self, job: PodJob, manifests: Sequence[Manifest], resource: str, *, tells_failure: bool
    ) -> None:
        """
        Args:
            job: What the manifests were made from.
            manifests: The job's objects.
            resource: What kubectl calls the job: ``jobs.batch``.
            tells_failure: Whether a job is ``Complete`` only if node 0's benchmark left 0.
        """
        self.job, self._manifests, self._resource, self._tells_failure = (
            job,
            manifests,
            resource,
            tells_failure,
        )

    @property
    def by_hand(self) -> Sequence[str]:
        """The manifests name a Secret, which is not among them."""
        names = list(self.job.secrets)
        if not names:
            return ()
        where = _namespace_option(self.job)
        return (
            f"the manifests are without {', '.join(names)}, and take it from the Secret "
            f"{self.job.name}",
            f"first: kubectl create secret generic {self.job.name}{where} --from-env-file=FILE, "
            "with a line NAME=VALUE for each",
        )

    def render(self) -> str:
        """The manifests as YAML."""
        return manifests_to_yaml(self._manifests)

    def submit(self) -> SubmittedJob:
        """Check what the job needs in the cluster, and apply the manifests."""
        job = self.job
        text = manifests_to_yaml([*secret_of(job), *self._manifests])
        kubectl.check_new(self._resource, job.name, job.namespace)
        if job.nodes > 1:
            kubectl.check_secret(job.token_secret, job.namespace)
        kubectl.apply(text, job.namespace)
        where = _namespace_option(job)
        return SubmittedJob(
            job.name,
            f"{job.directory} in the claim {job.results_claim}",
            f"kubectl logs{where} --selector {INSTANCE_LABEL}={job.name} --prefix --follow",
        )

    def state(self, job: SubmittedJob) -> SubmittedState:
        """The job's end, or its pods and what they wait for."""
        found = kubectl.job_of(self._resource, job.job_id, self.job.namespace)
        if found.exists and found.end is None:
            return SubmittedState(found.text)
        return SubmittedState(found.text, self._exit_code(found))

    def _exit_code(self, found: ClusterJob) -> int:
        """Exit code of node 0's benchmark. A job that failed, or is gone, has not succeeded
        whatever its last pod left."""
        if found.end == "Complete" and (found.exit_code is not None or self._tells_failure):
            return found.exit_code or int(ExitCode.OK)
        return found.exit_code or int(ExitCode.FAILED)


def prepare_train_job(
    experiment: Experiment, options: SubmitOptions, output_dir: Path | None
) -> KubernetesEngine:
    """A TrainJob of Kubeflow Trainer.

    Raises:
        UsageError: an option is missing or wrong.
    """
    job = pod_job(experiment, options, output_dir)
    runtime = (
        options.train_job.runtime if options.train_job.runtime is not None else _DEFAULT_RUNTIME
    )
    check_name("--runtime", runtime)
    manifests = train_job(job, runtime)
    return KubernetesEngine(job, manifests, "trainjobs.trainer.kubeflow.org", tells_failure=False)


def prepare_indexed_job(
    experiment: Experiment, options: SubmitOptions, output_dir: Path | None
) -> KubernetesEngine:
    """An Indexed Job and a headless Service.

    Raises:
        UsageError: an option is missing or wrong.
    """
    job = pod_job(experiment, options, output_dir)
    given = options.indexed_job.restarts
    restarts = given if given is not None else _DEFAULT_RESTARTS
    if not 0 <= restarts <= _MAX_RESTARTS:
        raise UsageError(f"--restarts {restarts}: expected 0 to {_MAX_RESTARTS}")
    return KubernetesEngine(job, indexed_job(job, restarts), "jobs.batch", tells_failure=True)
