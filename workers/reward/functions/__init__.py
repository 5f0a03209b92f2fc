"""The built-in reward functions, one a module. What each takes is in docs/howto/rewards.md."""
