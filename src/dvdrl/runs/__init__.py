"""Runs: their configuration, the training loop, and the directory that a run is."""
