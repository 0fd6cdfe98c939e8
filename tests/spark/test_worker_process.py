"""What a worker process keeps is its own: a forked process starts with nothing."""

import subprocess
import sys

from barnabas.spark.worker_process import Kept

FORKS = """
import os
from barnabas.spark.worker_process import Kept

kept = Kept()
kept.put("cluster", "a client with sockets and a thread")
if os.fork() == 0:
    before = kept.get("cluster")
    kept.put("cluster", "the child's")
    print("child", before, kept.get("cluster"), flush=True)
    os._exit(0)
os.wait()
print("parent", kept.get("cluster"))
"""


def test_forked_process_keeps_its_own_values() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True, timeout=180)
    assert done.stdout.splitlines() == ["child None the child's", "parent a client with sockets and a thread"]


def test_value_that_was_taken_is_nobody_elses() -> None:
    kept = Kept[str, int]()
    kept.put("a", 1)
    kept.put("b", 2)
    assert (kept.take("a"), kept.take("a"), kept.get("b")) == (1, None, 2)
    assert (kept.take_all(), kept.get("b")) == ([("b", 2)], None)
