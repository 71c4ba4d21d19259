"""A watched program behaves as if it were not watched: each is run by itself and by ``torchscale
watch``, and nothing may tell the two apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign import cases

from .faults import can_unshare
from .guest_programs import ALWAYS, CAMPAIGN
from .guests import Guest, check_same, run_guest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(150)]


@pytest.mark.parametrize(
    "guest",
    cases(ALWAYS, CAMPAIGN),
    ids=lambda guest: guest.name,
)
def test_a_watched_program_behaves_as_if_it_were_not(guest: Guest, tmp_path: Path) -> None:
    if "unshare" in guest.before and not can_unshare("--user --map-root-user"):
        pytest.skip("no unshare here")
    if guest.mounts and not can_unshare("--user --map-root-user --mount"):
        pytest.skip("no unshare --mount here")
    alone, watched = run_guest(guest, tmp_path)
    check_same(guest, alone, watched, tmp_path)
