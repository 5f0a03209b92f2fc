"""The trainer: Tinker's training verbs over many runs on one base model, and the work that keeps the runs safe."""
