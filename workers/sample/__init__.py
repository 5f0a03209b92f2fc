"""Sampling: ops handed to an engine, which is one of ours on torch or vLLM."""
