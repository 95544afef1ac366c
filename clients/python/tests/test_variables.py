"""Misspelt variables of the environment."""

from __future__ import annotations

import pytest

import rondo
from rondo import variables
from rondo.harness import rollout


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RONDO_NATS_CRED", "RONDO_NATS_CREDS"),
        ("RONDO_STROE", "RONDO_STORE"),
        ("RONDO_DIRR", "RONDO_DIR"),
        ("RONDO_GATEWAY_KAY", "RONDO_GATEWAY_KEY"),
        ("RONDONATS", "RONDO_NATS"),
    ],
)
def test_misspelt(name: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(ValueError, match=f"{name}.*did you mean {meant}"):
        rondo.Client()
    with pytest.raises(ValueError, match=meant):
        rollout("run", "task")


def test_others_are_not_the_clients() -> None:
    variables.check(["RONDO_TOOL_SLOTS", "RONDO_NATS_CHART", "RONDO_REQUIRE_ALL", "RONDO_GATEWAY_SERVICE_HOST", "PATH", "RONDO_NATS"])
