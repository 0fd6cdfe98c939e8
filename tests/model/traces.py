"""Histories that lost acknowledged records in earlier forms of the design, as lines that one can read.

`prove` is a fetch whose answer is lost; `expire` ends the session of a broker whose process lives.
"""

from typing import Final

from tests.model.world import Action, Budget

BUDGET: Final = Budget(record=3, kill=2, power=3, expire=4, propose=4, elect=6, resend=2, minimum=1)
"""Enough for each of them."""


def lines(text: str) -> tuple[Action, ...]:
    """Actions, one a line or several with a point between them."""
    sentences = (sentence.split() for line in text.splitlines() for sentence in line.split("·"))
    return tuple(tuple(int(word) if word.isdigit() else word for word in words) for words in sentences if words)


JOINS_TOO_EARLY: Final = lines("""
    shrink 0 2 · deliver 0 · image 0
    produce 0 · fetch 1 0 · prove 1 0
    expire 0 · watch 0 · decide · image 1 · image 1 · image 2 · image 2
    prove 2 1 · expand 1 2 · deliver 0
    expire 1 · watch 1 · decide · image 2 · image 2
""")
"""V1: the next leader does not know yet that A was acknowledged, and takes in a broker without A."""

ELECTED_WITHOUT_ASKING: Final = lines("""
    produce 0 · fetch 1 0 · fetch 2 0 · prove 1 0 · prove 2 0
    shrink 0 1 · deliver 0 · image 0
    kill 1 · power 0 0 · power 2 0
    restart 0 · restart 2 · watch 0 · watch 2 · image 2 · decide
    image 0 · image 0 · image 2 · image 2
""")
"""V2: both members of the ISR lost A, and the one that has it is not back yet."""

PROPOSED_IS_NO_MEMBER: Final = lines("""
    shrink 0 1 · deliver 0 · image 0 · shrink 0 2 · deliver 0 · image 0
    produce 0 · fetch 1 0 · prove 1 0 · expand 0 1 · prove 1 0
    expire 0 · watch 0 · decide · image 2 · image 2 · image 2
""")
"""V3: A is acknowledged because of a broker that was only proposed, and an eligible one without A is elected."""

COPY_UNDER_WAY: Final = lines("""
    shrink 0 2 · deliver 0 · image 0
    expire 2 · register 2 · prove 2 0
    expand 0 2 · repeat 0 · deliver 0
    produce 0 · fetch 1 0 · prove 1 0
    watch 2 · deliver 0
    expire 0 · watch 0 · kill 1 · expire 1 · watch 1 · decide
    image 2 · image 2 · image 2
""")
"""V4: an expansion is refused, because the controller has not seen the registration yet; its copy is written later."""

MINIMUM_LOWERED: Final = lines("""
    shrink 0 1 · deliver 0 · image 0 · shrink 0 2 · deliver 0 · image 0
    lower · image 0 · produce 0
    expire 0 · watch 0 · decide · image 2 · image 2 · image 2 · image 2
""")
"""V5: the leader acknowledges A alone, and who was eligible before that is elected."""

SAME_EPOCH: Final = lines("""
    produce 0 · fetch 1 0
    power 0 0 · restart 0 · produce 0
""")
"""The leader loses the end of its log and is back before the controller looks: it must not lead in its old epoch."""

REGISTERED_AGAIN: Final = lines("""
    produce 0 · fetch 1 0 · fetch 2 0
    shrink 0 2 · deliver 0 · image 0 · prove 1 0 · prove 2 0
    power 2 0 · restart 2 · watch 2 · expand 0 2 · deliver 0
    expire 0 · watch 0 · kill 1 · expire 1 · watch 1 · decide
    image 2 · image 2 · image 2 · image 2
""")
"""A broker has proved that it has A, and then loses it: it may not join for what it had in its earlier registration."""

ELIGIBLE_FOR_TOO_LONG: Final = lines("""
    shrink 0 1 · deliver 0 · image 0 · shrink 0 2 · deliver 0 · image 0
    prove 1 0 · expand 0 1 · deliver 0 · image 0
    produce 0 · fetch 1 0 · prove 1 0
    expire 0 · watch 0 · kill 1 · expire 1 · watch 1 · decide
    image 2 · image 2 · image 2 · image 2 · image 2
""")
"""A is acknowledged by enough brokers again; who was eligible before does not have it."""

CUT_TO_THE_WATERMARK: Final = lines("""
    produce 0 · fetch 1 0 · fetch 2 0 · prove 1 0 · prove 2 0 · produce 0 · fetch 2 0
    kill 2 · restart 2 · watch 2 · expire 0 · watch 0 · decide
    image 1 · image 2 · fetch 2 1
    kill 1 · expire 1 · watch 1 · decide · image 2
""")
"""A member that does not know yet that A is committed must keep it when it cuts its log."""

LOST_AND_BACK: Final = lines("""
    produce 0 · fetch 1 0 · fetch 2 0 · prove 1 0 · prove 2 0
    power 0 0 · restart 0 · watch 0 · decide · image 0 · image 0
""")
"""The leader loses A, which the others have, and is back before it is missed."""

LONGEST_OF_AN_OLD_EPOCH: Final = lines("""
    produce 0 · produce 0 · expire 0 · watch 0 · decide · image 1 · image 2
    produce 1 · fetch 2 1 · prove 2 1
    power 1 1 · power 2 1 · restart 1 · restart 2 · register 0 · watch 0 · watch 1 · watch 2 · decide
    image 0 · image 0
""")
"""The deposed leader has more records than those who have A, but of an earlier epoch."""

DIVERGED_PROVES_NOTHING: Final = lines("""
    produce 0 · fetch 2 0 · expire 0 · watch 0 · decide · image 1 · produce 1
    image 2 · fetch 2 1
    power 1 1 · restart 1 · watch 1 · decide · image 2
""")
"""A member has another record where A is: a fetch that tells so is no proof that it has A."""

ACKNOWLEDGED_ALONE: Final = lines("""
    shrink 0 2 · deliver 0 · image 0 · expire 1 · watch 1 · decide · image 0
    produce 0
    power 0 1 · restart 0 · watch 0 · register 1 · watch 1 · decide
    image 1 · image 1 · image 1
""")
"""With fewer in sync than the minimum nothing is acknowledged: one who was in sync before may be elected."""

EXPANDED_UNHEARD: Final = lines("""
    shrink 0 1 · deliver 0 · image 0 · prove 1 0 · expand 0 1 · deliver 0
    produce 0 · fetch 2 0 · prove 2 0
    power 0 0 · restart 0 · watch 0 · decide · image 1 · image 1 · image 1
""")
"""The expansion is written, and the leader has not heard of it yet: the new member counts all the same."""

SHRINK_NOT_WRITTEN: Final = lines("""
    produce 0 · fetch 2 0 · shrink 0 1 · prove 2 0
    expire 0 · watch 0 · kill 2 · expire 2 · watch 2 · decide · image 1
""")
"""The shrink is proposed and never written: who was to leave is a member, and may be elected."""

PARTED_LOGS: Final = lines("""
    produce 0 · fetch 2 0 · power 0 1 · restart 0 · watch 0 · decide
    image 1 · image 2 · produce 1 · fetch 2 1 · prove 2 1
""")
"""A follower with a record that the new leader does not have must cut it off."""
