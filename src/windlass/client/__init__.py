"""Submit: what user programs call."""
