"""Client libraries and tools as tests of a cluster use them: the same few calls for each, and the same answers.

A client that cannot do something (kcat administers nothing) lacks the method. Whether it can be had on this machine is
the test's business.
"""
