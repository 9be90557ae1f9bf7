"""What is installed: locked by version and hash, listed for others, and looked up among known vulnerabilities."""
