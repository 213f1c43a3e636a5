"""Runs: their options, the training loop, and run directories."""
