"""Run and report: what happens in worker processes."""
