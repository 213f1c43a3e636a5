"""The experiments of the paper: what each runs, its statistics and its figures."""
