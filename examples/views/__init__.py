"""Stream processing: page views joined with users, and sessions made of them by a stateful step."""
