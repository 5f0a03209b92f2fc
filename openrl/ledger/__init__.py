"""The record of every operation, and who is told when one settles."""
