"""The experiments of the paper: their runs, statistics, tables and figures."""
