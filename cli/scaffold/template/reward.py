"""A reward of your own, beside the tests': python3 reward.py RUN [DIR]. It may be killed and started again, and there may be several."""

import sys

from rondo import env


def brevity(rollout):
    """1 for a rollout that says nothing beside its tool calls, and less the more it says."""
    said = sum(len(message.get("content") or "") for message in rollout.messages if message["role"] == "assistant")
    return {"brevity": 1000 / (1000 + said)}


if __name__ == "__main__":
    env.serve(sys.argv[1], reward=brevity, dir=sys.argv[2] if len(sys.argv) > 2 else None)
