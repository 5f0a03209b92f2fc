"""The vLLM sample engine: vLLM's AsyncLLM behind the port of sample engines."""
