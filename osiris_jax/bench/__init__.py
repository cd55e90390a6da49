"""Benchmarks: a harness, cases with rivals beside them, the roofline, scaling curves, a report."""
