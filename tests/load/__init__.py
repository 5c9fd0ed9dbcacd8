"""Loads on the real portal, measured: not collected as tests, run by ``make bench-…``."""
