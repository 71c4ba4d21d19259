"""The text of the batch script, in bash: what every job has, and what starts the benchmark: one
process that leads, or one that joins on each node."""

from __future__ import annotations

SCRIPT = """\
#!/bin/bash
{directives}
#
# Written by `torchscale submit`. To submit it by hand, first make the directory of --output.
set -euo pipefail
unset TORCHSCALE_TOKEN

state={state}
directory={directory}
mkdir -p "$state"
cd {working_directory}

config="$state/config-$SLURM_JOB_ID.yaml"
exit_file="$state/exit-$SLURM_JOB_ID"
cat > "$config" <<'{mark}'
{config}{mark}
rm -f "$exit_file"

stopping=0
{start}
while true; do  # a trapped signal ends wait, not the program
  before=$stopping code=0
  wait "$running" || code=$?
  if [ "$before" -eq "$stopping" ]; then break; fi
done
{end}
# After the time limit's signal the job goes back to the queue and resumes; a cancelled job is not RUNNING any more.
if [ "$stopping" -gt 0 ] && [ "$code" -ne 0 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {requeues} ]; then
  job_state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T || true)
  if [ "$job_state" = RUNNING ]; then
    rm -f "$exit_file"
    scontrol requeue "$SLURM_JOB_ID"
  fi
fi
exit "$code"
"""

LED_START = """\
# This is on the first node. It starts a step of the job on each node, by itself.
# TERM comes {signal_seconds} s before the time limit.
trap 'stopping=$((stopping + 1)); kill -TERM "$running" || true' TERM
{command} benchmark "$config" --output-dir "$directory" {nodes} &
running=$!
"""
LED_END = """\
echo "$code" > "$exit_file.new"
mv "$exit_file.new" "$exit_file"
"""

JOINED_START = """\
token="$state/token-$SLURM_JOB_ID"
trap 'rm -f "$token"' EXIT
rm -f "$token"
(umask 077 && {python} -I -c 'import secrets; print(secrets.token_hex(32))' > "$token")

read -r first_host < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
master="$first_host:$((20000 + SLURM_JOB_ID % 20000))"

# TERM comes {signal_seconds} s before the time limit. srun itself would answer it with KILL, so the tasks get it.
trap 'stopping=$((stopping + 1)); scancel --signal=TERM "$SLURM_JOB_ID" || true' TERM

# Expanded in each task, where SLURM_NODEID is that node's. Node 0 leaves its exit code in a file and ends with 0, so
# that the other nodes are not killed while they leave; one that was told to stop does the same.
srun {srun} bash -c '
  trap : TERM
  options=(--nnodes "$SLURM_NNODES")
  if [ "$SLURM_NNODES" -gt 1 ]; then
    options+=(--node-rank "$SLURM_NODEID" --master "$3" --token-file "$4")
  fi
  exit_file="$5"
  config="$1" directory="$2"
  shift 5
  code=0
  "$@" benchmark "$config" --output-dir "$directory" "${{options[@]}}" || code=$?
  if [ "$SLURM_NODEID" -eq 0 ]; then
    echo "$code" > "$exit_file.new"
    mv "$exit_file.new" "$exit_file"
    exit 0
  fi
  if [ "$code" -eq 130 ]; then exit 0; fi
  exit "$code"
' torchscale-node "$config" "$directory" "$master" "$token" "$exit_file" torchscale &
running=$!
"""
JOINED_END = """\
if [ -f "$exit_file" ]; then
  run_code=$(cat "$exit_file")
  if [ "$run_code" -ne 0 ]; then code=$run_code; fi
fi
"""
