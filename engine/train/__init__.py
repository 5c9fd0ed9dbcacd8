"""Training: one job's adapter and optimizer at a time, over a frozen base, as a pure function of the request."""
