"""Ways to look at a run. They only read its directory."""
