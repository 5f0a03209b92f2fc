"""The sampler: continuous batching of many policies on one base model."""
