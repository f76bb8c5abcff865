"""What operators see and set: metrics, logs, status, memory limit; fault points for tests."""
