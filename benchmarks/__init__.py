"""Measurements, as ratios taken in one run. `make bench` runs them all; they never decide a test."""
