"""The real engine on this machine under loads that other systems were measured with: ``python -m engine.bench --help``."""
