"""Consumer groups: membership, rebalances and committed offsets, by the classic protocol.

The pure core is a state machine whose durable part is the log `__consumer_offsets` alone (docs/decisions/0010). Read
`transitions` (the states), `state` (the calls), `rebalance` and `join` (the rules), `effects` (what comes out).
"""
