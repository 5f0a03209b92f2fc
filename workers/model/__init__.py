"""The base model in memory and the LoRA adapters on it, for training and sampling alike."""
