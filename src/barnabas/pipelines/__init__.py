"""Pipelines: one YAML file that says what to read, compute and write, run by Spark's Structured Streaming."""
