"""Windlass: a durable job queue and scheduler on PostgreSQL or on one SQLite file."""

__version__ = "0.1.0"
