"""Kubernetes: the manifests of a benchmark, and what kubectl says of its job."""
