"""Pipelines to learn from and to start with: each has its file, a generator of input, and a guide in docs/examples."""
