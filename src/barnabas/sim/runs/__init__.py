"""Running histories: many seeds in several processes, one seed with its story, and a failing plan made shorter.

| module | what it does |
|---|---|
| `command` | the options of `python -m barnabas.sim` |
| `series`, `workers`, `ledger` | many seeds: order and time limit; processes; the file that a later call continues |
| `verdicts`, `progress` | the result of one history; what is shown while a series runs |
| `replay`, `log_capture`, `story` | one plan again, with log lines; a history as lines for a person |
| `shrinking` | the shortest plan that fails in the same way |

Nothing here takes part in a history: a seed gives the same history whatever runs it.
"""
