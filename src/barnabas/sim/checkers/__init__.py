"""What must be true of every history, each rule in a module of its own.

A checker is a function from a `History` to the problems it finds, as texts that name the place and the time. It looks
at nothing but the history: events, final logs, findings. `barnabas.sim.checkers.table` lists them all.
"""
