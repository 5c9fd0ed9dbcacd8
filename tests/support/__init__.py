"""What several test stages need and no test is."""
