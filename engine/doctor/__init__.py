"""The doctor: pure functions over a job's history of steps and evaluations. Standard library only."""
