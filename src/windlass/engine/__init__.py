"""What makes the path of a job fast and always on: batching, long poll, wake-ups, duties; `engine.py` is the whole."""
