"""What a process tells of itself to those who operate it: metrics, health, logs, traces."""
