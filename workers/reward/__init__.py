"""Reward functions, and the work that scores texts with them."""
