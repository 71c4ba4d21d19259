"""Throughput at other counts of devices, predicted from measured ones: the law, its intervals, the
page and tables."""
