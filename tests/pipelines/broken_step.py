"""A module of a step that cannot be imported."""

any = 1 // 0
