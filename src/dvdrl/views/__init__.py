"""Ways to look at a run; they read its directory and nothing else."""
