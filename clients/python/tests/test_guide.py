"""What docs/guide/harnesses.md shows of a harness runs as it is written there. tests/readme runs the trainer of the README."""

from __future__ import annotations

import re
from pathlib import Path

import rondo

from .conftest import ROOT, Plane

RUN = """
policy: mine
endpoint: builtin
external: true
group_size: 2
feeds: [{name: trainer, groups_per_batch: 1}]
features: [user_traffic]
traffic: {rate: 1, consent: optional}
"""


def test_harness(client: rondo.Client, plane: Plane, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN)
    plane.command("run", "open", "mine", "--file", str(tmp_path / "run.yaml"), "--tasks", str(ROOT / "demo/packs/sample"))
    shown = re.search(r"```python\n(import rondo\n.*?)```", (ROOT / "docs/guide/harnesses.md").read_text(), re.DOTALL)
    assert shown is not None
    exec(shown[1].replace("/srv/rondo", str(plane.dir)), {})
    with rondo.Feed("mine", "trainer", client=client, timeout=30) as feed:
        batch = next(feed)
    assert batch["rollout_id"].tolist() == ["xfirst-0", "xfirst-1"]
    assert batch.rewards.tolist() == [0, 1]
    assert batch.tokens.row(0).tolist() == [1, 2, 3, 4, 5]
