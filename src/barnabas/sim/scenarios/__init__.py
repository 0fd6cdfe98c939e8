"""Scenarios: one history of brokers and clients, told in a page of text that people can read.

`forms` is the language's table of sentences, `language` reads a page, `clients` are its producers, readers, members and
admin, `interpreter` lets it happen and compares.
"""
