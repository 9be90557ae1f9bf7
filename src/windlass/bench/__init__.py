"""Benchmarks: what each part costs, beside the least that the same driver can do on the same database."""
