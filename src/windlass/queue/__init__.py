"""The path of a job, step by step: each step is a module (when, why) and a `.sql` file (what, on both databases)."""
