"""Bugs that are planted into production code, to see that the checkers of the simulation catch them.

| module | what it holds |
|---|---|
| `planting` | what a mutant is, and how it is planted and taken out again |
| `*_mutants` | the mutants, by the part of the code that they damage |
| `mutants` | all others by name |
| `search` | looks for a seed that catches a mutant |
| `command` | `python -m tests.sim.mutants`, which does it for all |
| `record` | `caught.json`: which seed and checker caught which mutant |
"""
