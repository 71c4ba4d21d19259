"""Lines of NCCL's watchdog in the logs of a job."""
