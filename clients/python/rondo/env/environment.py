"""What a user's environment is given and gives back, and how its forms become one."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .arguments import meant, unicode

__all__ = [
    "MAX_COMPONENTS",
    "MAX_OBSERVED",
    "MAX_STATE",
    "Action",
    "Adapted",
    "Answer",
    "Call",
    "Environment",
    "Step",
    "Task",
    "adapted",
    "components",
]

#: Bounds of what an environment says at once, as the intake has them: bytes of its messages, bytes of its state, parts of its reward.
MAX_OBSERVED, MAX_STATE, MAX_COMPONENTS = 1 << 20, 1 << 20, 100

#: Rewards beyond this are a mistake.
MAX_REWARD = 1e9


@dataclass(frozen=True)
class Task:
    """The task of an episode. `data` is what the tasks file says beside name and instruction; the model does not see it."""

    name: str
    instruction: str
    data: Mapping[str, Any]
    #: Of this rollout: the members of a group have different ones.
    seed: int = 0
    run: str = ""
    rollout: str = ""


@dataclass(frozen=True)
class Call:
    """A tool call as the model wrote it."""

    id: str
    name: str
    #: JSON, as the model wrote it: it may be malformed.
    arguments: str
    #: The tool's, as the model was shown it; None where the run has no such tool.
    schema: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def parsed(self) -> dict[str, Any]:
        """The arguments as the tool's schema lets them mean: "3" is 3 where it wants an integer.

        ValueError, in the schema's words, where they are none of the tool's.
        """
        return meant(self.schema or {}, self.arguments)


@dataclass(frozen=True)
class Action:
    """What the model did in a turn."""

    turn: int
    content: str
    calls: Sequence[Call] = ()
    reasoning: str = ""
    #: stop, tool_calls or length.
    finish_reason: str = ""
    #: Whose turn it is, where an episode has several roles.
    role: str = ""
    #: Whether a limit of the run is reached: the rollout ends behind the answer, also without `done`.
    last: bool = False


@dataclass
class Step:
    """What an environment answers.

    say: a message of the user's, "" for none. answers: those to the turn's calls, by their ids.
    reward is added to the rollout's component "reward"; of other components the last value counts.
    """

    say: str = ""
    reward: float = 0.0
    done: bool = False
    components: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)


#: What step and reset may give: a Step, what to say, or (say, reward, done).
Answer = Step | str | tuple[str, float, bool]


class Environment(Protocol):
    """One episode. An instance is made for each, and used by one thread.

    It may also have:
    save() -> JSON value, and load(task, state): then another worker goes on from what was saved behind the last turn.
    Without them another worker gives a new instance the recorded turns again, and compares what it answers with the record.
    restart = "fail": neither; the rollout fails where its worker is lost, as a failure of the machine.
    tools: functions by the names of the run file's tools, called with what the model's arguments mean by the tools' schemas; what they
    give is shown to the model.
    """

    def reset(self, task: Task) -> Answer:
        """Begin the episode. What is said takes the place of the task's instruction; "" keeps it."""
        ...

    def step(self, action: Action) -> Answer:
        """Answer a turn."""
        ...


class Adapted:
    """A user's environment in any of its forms, as the worker uses it. Its methods run in the episode's thread."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self.saves = hasattr(environment, "save") and hasattr(environment, "load")
        self.repeats = not self.saves and getattr(environment, "restart", "replay") != "fail"

    def reset(self, task: Task) -> dict[str, Any]:
        """Begin; the fact that says so, without its turn."""
        return self._stated(_step(self._environment.reset(task)), {}, ())

    def load(self, task: Task, state: str) -> None:
        """Go on from a state."""
        self._environment.load(task, json.loads(state))

    def step(self, action: Action) -> dict[str, Any]:
        """Answer a turn; the fact that says so, without its turn."""
        tools: Mapping[str, Callable[..., Any]] = getattr(self._environment, "tools", None) or {}
        if action.calls and tools:
            return self._stated(Step(), {call.id: _called(tools, call) for call in action.calls}, action.calls)
        step = _step(self._environment.step(action))
        return self._stated(step, {id: (text, False) for id, text in step.answers.items()}, action.calls)

    def close(self) -> None:
        """End the episode."""
        if hasattr(self._environment, "close"):
            self._environment.close()

    def _stated(self, step: Step, answers: Mapping[str, tuple[str, bool]], calls: Sequence[Call]) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        for call in calls:
            if call.id not in answers and not step.done:
                raise ValueError(f"the call {call.id} of {call.name} has no answer: give Step(answers={{call.id: text}})")
            if call.id in answers:
                text, error = answers[call.id]
                messages.append(
                    {
                        "role": "tool",
                        "content": unicode(text),
                        "tool_call_id": call.id,
                        "name": call.name,
                        **({"error": True} if error else {}),
                    }
                )
        if step.say:
            messages.append({"role": "user", "content": unicode(step.say)})
        said = sum(len(m["content"].encode()) for m in messages)
        if said > MAX_OBSERVED:
            raise ValueError(f"the environment says {said} bytes at once, at most {MAX_OBSERVED}")
        stated: dict[str, Any] = {"messages": messages, **components(step.components, step.reward)}
        if step.done:
            stated["done"] = True
        if self.saves and not step.done:
            stated["state"] = json.dumps(self._environment.save(), allow_nan=False)
            if len(stated["state"].encode()) > MAX_STATE:
                raise ValueError(f"the state has {len(stated['state'])} bytes, at most {MAX_STATE}")
        return stated


#: What stands for a reward that is none of the parts.
_APART = object()


def components(given: Mapping[str, Any], reward: Any = _APART) -> dict[str, Any]:
    """The parts of a reward, as facts carry them. ValueError for one that is missing or no number: it must not pass for a reward of 0."""
    if len(given) > MAX_COMPONENTS:
        raise ValueError(f"{len(given)} components, at most {MAX_COMPONENTS}")
    stated: dict[str, Any] = {"components": {str(name): _number(f"component {name!r}", value) for name, value in given.items()}}
    if reward is not _APART:
        stated["reward"] = _number("reward", reward)
    return stated


def _number(name: str, value: Any) -> float:
    if value is None:
        raise ValueError(f"the {name} is missing: it is None, and must be a number")
    if isinstance(value, str | bytes):
        raise ValueError(f"the {name} is the text {value!r:.40}: it must be a number")
    number = float(value)
    if not math.isfinite(number) or abs(number) > MAX_REWARD:
        raise ValueError(f"the {name} is {number}: it must be a finite number of at most {MAX_REWARD:g} either way")
    return number


def _step(answer: Any) -> Step:
    if isinstance(answer, Step):
        return answer
    if isinstance(answer, str) or answer is None:
        return Step(answer or "")
    if isinstance(answer, tuple) and len(answer) == 3:
        return Step(str(answer[0]), answer[1], bool(answer[2]))
    raise TypeError(f"an environment answers with a Step, a text, or (text, reward, done), not with {type(answer).__name__}")


def _called(tools: Mapping[str, Callable[..., Any]], call: Call) -> tuple[str, bool]:
    """Call a tool. What goes wrong there is told to the model, as it may have asked for nonsense."""
    if call.name not in tools:
        return f"error: there is no tool {call.name!r}", True
    try:
        arguments = call.parsed()
        inspect.signature(tools[call.name]).bind(**arguments)
        return str(tools[call.name](**arguments)), False
    except Exception as error:
        return f"error: {error}"[:2000], True


class _Generated:
    """A generator function as an environment: it yields what it says and is sent the model's actions; what it returns ends the episode."""

    def __init__(self, function: Callable[[Task], Generator[Any, Action, Any]]) -> None:
        self._function = function
        self._paid = False
        self.close: Callable[[], None] = lambda: None

    def reset(self, task: Task) -> Answer:
        self._generator = self._function(task)
        self.close = self._generator.close
        return self._next(lambda: next(self._generator))

    def step(self, action: Action) -> Answer:
        return self._next(lambda: self._generator.send(action))

    def _next(self, advance: Callable[[], Any]) -> Answer:
        try:
            answer = advance()
            self._paid = self._paid or isinstance(answer, (Step, tuple))  # those have a reward, be it 0
            return _step(answer)
        except StopIteration as end:
            if end.value is None and not self._paid:
                raise ValueError("the generator has ended without a reward: let it return a number, or yield steps with rewards") from None
            last = Step(reward=end.value) if isinstance(end.value, (int, float)) else _step(end.value)
            last.done = True
            return last


def adapted(environment: Any) -> Callable[[], Adapted]:
    """A maker of episodes, of a class, a function that makes an environment, or a generator function."""
    if inspect.isgeneratorfunction(environment):
        return lambda: Adapted(_Generated(environment))
    if not callable(environment):
        raise TypeError("environment: give a class with reset and step, a function that makes one, or a generator function")
    return lambda: Adapted(environment())
