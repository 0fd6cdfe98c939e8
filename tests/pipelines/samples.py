"""Pipeline files that the tests start from."""

VIEWS = """\
name: views
checkpoint: checkpoint
dead_letter: dead
sources:
  views:
    topic: views
    schema: "user string NOT NULL, page string, at timestamp"
    event_time: at
    watermark: 10 seconds
  users:
    topic: users
    table: true
    schema: name string
    metadata: [key]
    refresh: 100 ms
steps:
  named:
    sql: |
      SELECT v.user, u.name, v.page, v.at
      FROM views v LEFT JOIN users u ON v.user = u._key
  pages:
    sql: |
      SELECT window(at, '1 minute').start AS start, page, count(*) AS n
      FROM named GROUP BY window(at, '1 minute'), page
sinks:
  counts:
    from: pages
    topic: counts
    key: page
  archive:
    from: named
    parquet: table
    partition_by: page
"""

COPIED_WORDS_GROUP = "words.copies"
COPIED_WORDS = """\
name: words
checkpoint: checkpoint
sources:
  words: {topic: words, format: text, records_max_per_batch: 20}
sinks:
  copies: {from: words, topic: copies, format: text}
"""
