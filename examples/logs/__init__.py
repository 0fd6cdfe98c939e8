"""Log aggregation: lines of several services parsed, errors counted per service and minute, everything kept."""
