"""Peers: other job queues, run for comparison in environments of their own."""
