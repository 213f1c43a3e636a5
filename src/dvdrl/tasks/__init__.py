"""The tasks that populations are trained on."""
