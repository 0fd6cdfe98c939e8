"""The metadata store of many brokers: a ZooKeeper ensemble, reached with kazoo.

```
event loop                                      threads
ZooKeeperStore ── requests ──> SessionClient ── kazoo's connection loop ── ZooKeeper
       ▲                            │
       └── answers, events, states ─┘   in the order in which the connection saw them
LoopWatchdog: ends the session of an event loop that is stuck
```

| module | what it owns |
|---|---|
| `zookeeper_options` | how to reach an ensemble, what is checked before, and who may read which node. Pure |
| `zookeeper_store` | `ZooKeeperStore`: the contract of `barnabas.metadata.store`, on the event loop |
| `zookeeper_calls` | what a session asks, checked before it is sent. Pure |
| `call_queue` | the calls that wait for their turn, and those under way |
| `kazoo_session` | the connection of one session, in kazoo's thread |
| `kazoo_sockets` | that thread, its sockets, TLS, and how its waits are ended |
| `kazoo_messages` | calls as kazoo's requests; its answers and errors as ours. Pure |
| `loop_watchdog` | the thread that notices a stuck event loop |
| `session_end` | `end_session`: closes the session of a process that is dead |

kazoo is imported when a session is opened, not with these modules.
"""
