"""Metric monitoring: hosts send metrics, Spark judges them by rules, alerts go to a topic."""
