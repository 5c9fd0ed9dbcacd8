"""Base models: where their weights come from, and the tiny bundled one with the tasks it half knows."""
