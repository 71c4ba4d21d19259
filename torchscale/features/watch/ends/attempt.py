"""Why an attempt of a watched job failed, from the files of the job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torchscale.features.watch.ends.calls import ended_calls
from torchscale.features.watch.ends.collectives import mismatched_collectives
from torchscale.features.watch.ends.failed_attempt import FailedAttempt
from torchscale.features.watch.ends.failure import find_failure
from torchscale.features.watch.ends.files import EndFiles, read_waits
from torchscale.features.watch.ends.kernel import kernel_news
from torchscale.features.watch.ends.ranks import RankEnd, rank_ends
from torchscale.features.watch.job.attempts import Attempt
from torchscale.launch.oom import OomKills
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.watch.failure import JobFailure
from torchscale.worker.watch import clock


class JobEnds:
    """How the attempts of a job end.

    Attributes:
        failure: Why the job failed; ``None`` where it has not.
    """

    def __init__(self, directory: Path, program: str) -> None:
        self._directory, self._program = directory, program
        self._files, self._kills = EndFiles(directory), OomKills()
        self.failure: JobFailure | None = None

    def attempts(self) -> set[int]:
        """Numbers of attempts of which a process has left its end."""
        return self._files.attempts()

    def ended_ranks(self, attempt: Attempt) -> dict[int, str]:
        """Rank → how it ended, of those of an attempt that goes on."""
        ranks = {rank: stream.facts for rank, stream in attempt.follower.streams.items()}
        ends = rank_ends(self._files.of_attempt(attempt.number), ranks)
        return {
            end.rank: f"it raised {end.first_line}" if end.error else end.signal
            for end in ends
            if end.rank is not None
        }

    def note(self, attempt: Attempt, began: float, exit_code: int | None) -> None:
        """The program has ended, and its last attempt with it: find out why, if it failed.

        Args:
            attempt: The last one.
            began: When it began, in seconds since the epoch.
            exit_code: ``None`` where the program is not ours.

        Raises:
            StoreError: a file of a rank is damaged.
        """
        if exit_code != 0:
            self.failure = self._of(attempt, began, exit_code)

    def of_attempt(self, attempt: Attempt, began: float) -> JobFailure | None:
        """Why an attempt ended that another one follows; ``None`` where nothing says so. Kills of
        the kernel count for the next one from now on.

        Raises:
            StoreError: a file of a rank is damaged.
        """
        try:
            return self._of(attempt, began, None)
        finally:
            self._kills = OomKills()

    def _of(self, attempt: Attempt, began: float, exit_code: int | None) -> JobFailure | None:
        streams = attempt.follower.streams
        for stream in streams.values():
            stream.read_use()
        return find_failure(
            FailedAttempt(
                number=attempt.number,
                ends=self._files.of_attempt(attempt.number),
                waits=[
                    wait for wait in read_waits(self._directory) if wait.attempt == attempt.number
                ],
                ranks={rank: stream.facts for rank, stream in streams.items()},
                uses={rank: stream.use for rank, stream in streams.items()},
                exit_code=exit_code,
                program=self._program,
                oom_kills=self._kills.since_start(),
                kernel=kernel_news(began, clock.now()),
                collectives=partial(_collectives, self._directory, attempt.number, began),
            )
        )


def _collectives(
    directory: Path, attempt: int, began: float, ends: Sequence[RankEnd]
) -> Autopsy | None:
    return mismatched_collectives(ends, ended_calls(directory, attempt), began)
