"""Graders: how a completion becomes a reward."""
