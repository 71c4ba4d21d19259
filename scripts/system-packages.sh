#!/bin/sh
# Installs missing Debian packages that pip cannot install, if apt-get can be used:
#   report   the text layout library that the PDF report needs
#   tests    the same, Chromium for tests of the HTML report, a compiler for tests that compile models or stand in for
#            the NVIDIA driver, iproute2 for tests over several nodes, ssh-keygen, and Slurm with munge for tests of jobs
set -eu

need=""
has_library() { ldconfig -p 2>/dev/null | grep -q "$1"; }
has_library libpangoft2-1.0 || need="$need libpango-1.0-0 libpangoft2-1.0-0"
has_library libharfbuzz-subset || need="$need libharfbuzz-subset0"
if ! fc-list 2>/dev/null | grep -q .; then need="$need fonts-dejavu-core fontconfig"; fi
if [ "${1:-report}" != report ]; then
    [ -x /usr/bin/chromium ] || need="$need chromium"
    PATH="$PATH:/usr/sbin:/sbin" command -v tc >/dev/null 2>&1 || need="$need iproute2"
    command -v ssh-keygen >/dev/null 2>&1 || need="$need openssh-client"
    command -v g++ >/dev/null 2>&1 || need="$need g++"
    PATH="$PATH:/usr/sbin:/sbin" command -v slurmctld >/dev/null 2>&1 || need="$need slurmctld slurmd slurm-client munge"
fi
[ -n "$need" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "note: install these with your package manager for PDF reports:$need" >&2
    exit 0
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "note: for PDF reports run: sudo apt-get install$need" >&2
        exit 0
    fi
    as_root="sudo"
fi
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086 - a list of words
$as_root apt-get install -y -qq --no-install-recommends $need >/dev/null
