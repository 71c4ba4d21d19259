"""The collector of a watched job: what runs in each of its ranks.

It is loaded by its path into the Python of the job, which need not have torchscale's dependencies:
these modules import the standard library, torch and each other alone.
"""
