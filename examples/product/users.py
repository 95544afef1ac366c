"""The users, who always say the same: sessions with who has agreed, and who has not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class User:
    """A session of a user. Its id tells nobody who that is."""

    session: str
    consents: bool
    says: tuple[str, ...]
    accepts: bool = False


# With a rate of 0.5 the run takes the sessions c6, c8 and a2. c2 and a1 are not in its share, and c3 and a4 have not agreed.
CHATTERS = [
    User("c6", True, ("Complete: def slug(title):",), accepts=True),
    User("c2", True, ("Complete: class LeftOut:",), accepts=True),
    User("c3", False, ("Complete: my password is planted-hunter2",), accepts=False),
    User("c8", True, ("Complete: for word in",), accepts=False),
]

CODERS = [
    User("a2", True, ("Slugs must not end in a dash.", "No, the one in slugify.sh.", "Thanks, that works.")),
    User("a1", True, ("Rename all the files that are left out.", "Great, left out as I am.")),
    User("a4", False, ("Deploy with the planted key.", "No, with the other planted key.", "Thanks.")),
]
