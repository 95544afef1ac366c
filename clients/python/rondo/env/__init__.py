"""Environments and reward functions of your own: Python that answers the turns of a run's rollouts, or rates them when they have finished.

    from rondo import env

    def exact(rollout):
        return float(rollout.answer.strip() == rollout.data["answer"])

    env.serve("maths", reward=exact)

Your code runs in this process, never in the plane. Start as many as you like: each takes what the others have not. See `serve`.
"""

from .environment import Action, Answer, Call, Environment, Step, Task
from .partner import Partner, PartnerError
from .rating import Rollout
from .roles import End, Next
from .worker import serve, work

__all__ = ["Action", "Answer", "Call", "End", "Environment", "Next", "Partner", "PartnerError", "Rollout", "Step", "Task", "serve", "work"]
