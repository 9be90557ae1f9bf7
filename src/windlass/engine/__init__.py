"""What a server adds to the path of a job: batches, long polls, wake-ups, duties."""
