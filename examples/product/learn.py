"""Users of the agent, whose verdicts teach it: python3 learn.py RUN FIRST LAST plays the sessions with these numbers.

Each user asks for one of the run's programs to be mended, and reads what the agent did. The user takes the work over if the tests passed in
the end, and throws it away if they did not.
"""

from __future__ import annotations

import os
import sys

import rondo

PLANE = os.environ.get("PLANE", "/srv/rondo")


def read(client: rondo.Client, run: str, rollout: str) -> tuple[int, bool]:
    """The version that did the work, and whether the tests passed when they ran last."""
    messages = client.trajectory(run, rollout).select(["role", "content", "policy_version"]).to_pylist()
    outputs = [m["content"] for m in messages if m["role"] == "tool" and "ok - " in m["content"]]
    return max(m["policy_version"] for m in messages), bool(outputs) and "not ok - " not in outputs[-1]


def main(run: str, first: int, last: int) -> None:
    """Submit all queries, judge each answer when it is there, and wait for the version that a batch of them becomes."""
    with rondo.Client(PLANE, source="users") as client:
        config = client.config(run)
        tasks = [task["name"] for task in config["tasks"]]
        asked = []
        for n in range(first, last + 1):
            task = tasks[n % len(tasks)]
            wish = f"{task}.sh prints something wrong. See `sh test.sh`."
            asked.append(client.submit_query(run, wish, task=task, session=f"s{n}", consent=True))
        verdicts: dict[int, list[bool]] = {}
        for query in asked:
            rollout, _ = client.answer(run, query, timeout=600)
            version, accepts = read(client, run, rollout)
            client.record_feedback(run, rollout, "accept" if accepts else "reject")
            verdicts.setdefault(version, []).append(accepts)
        for version, accepted in sorted(verdicts.items()):
            print(f"users accepted {sum(accepted)} of {len(accepted)} answers of version {version}", flush=True)
        batches, rest = divmod(last, config["feeds"][0]["groups_per_batch"])
        if rest == 0:
            published = next(v.version for v in client.versions(config["policy"]) if v.version >= batches)
            print(f"version {published} is published", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
