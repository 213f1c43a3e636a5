"""Benchmarks of speed, as ratios to a reference that is timed in the same run (`dvdrl bench`)."""
