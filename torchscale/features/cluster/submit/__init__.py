"""A benchmark as a job of Slurm or Kubernetes: one module for each scheduler, behind one
interface."""
