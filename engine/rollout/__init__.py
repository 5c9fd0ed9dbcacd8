"""Sampling: episodes, and the multi-LoRA engine below them."""
