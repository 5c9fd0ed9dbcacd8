"""Plugins of our own test runs; `pyproject.toml` loads the first two in every run."""
