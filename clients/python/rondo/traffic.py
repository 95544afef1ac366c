"""Whose sessions a run takes: by the share that its run file names, and by consent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

__all__ = ["keeps_code_out", "refusal", "sampled"]

#: The feature of runs that take users' traffic.
FEATURE = "user_traffic"
#: The feature of runs that take users' repositories, too.
REPOSITORIES = "user_repositories"


def sampled(session: str, rate: float) -> bool:
    """Whether a session belongs to a share of all sessions, 0 to 1.

    It follows from the id alone, so every process of a product finds the same, as the intake does; what is in at one rate is in at every
    higher one.
    """
    bits = 53  # those of a float: the division is exact
    return (int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "big") >> (64 - bits)) / (1 << bits) < rate


def refusal(config: Mapping[str, Any], session: str, consent: bool) -> str:
    """Why a run with this configuration takes nothing of a session; "" when it does."""
    traffic = config.get("traffic") or {}
    rate = float(traffic.get("rate", 0))
    if FEATURE not in (config.get("features") or ()):
        return f"the run takes no users' traffic; runs that do have {FEATURE} among their features"
    if traffic.get("consent") != "optional" and not consent:
        return "the run takes nothing of users who have not agreed"
    if not session and rate < 1:
        return f"name the session, as the run takes a share of {rate:g} of all sessions"
    if not sampled(session, rate):
        return f"the session is not in the share of {rate:g} of all sessions that the run takes"
    return ""


def keeps_code_out(config: Mapping[str, Any], consent: bool) -> str:
    """Why a run with this configuration takes no repository of a user; "" when it does."""
    if REPOSITORIES not in (config.get("features") or ()):
        return f"the run takes no repositories of users; runs that do have {REPOSITORIES} among their features"
    return "" if consent else "the run takes no repository of users who have not agreed"
