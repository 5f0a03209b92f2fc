"""The torch sample engine: continuous batching of many policies on one base model."""
