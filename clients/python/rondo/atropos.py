"""Environments of Atropos on an external run: their completions are the turns of rollouts, their scores the rewards.

    from rondo import atropos

    atropos.serve("sums", SumsEnv)

The environment runs in this process, with its own get_next_item, collect_trajectories (or collect_trajectory), scores and
postprocess_histories. Its server is the plane's gateway. Neither Atropos's API server nor its trainer takes part. Needs atroposlib 0.4.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import openai
from atroposlib.envs.server_handling.managed_server import SequenceNode
from atroposlib.envs.server_handling.server_baseline import ServerBaseline

from .errors import GatewayError
from .harness import Rollout, rollout

__all__ = ["serve", "work"]

log = logging.getLogger("rondo.atropos")

T = TypeVar("T")

#: What a mask has where a token was not sampled, and a log-probability there.
_IGNORED, _NO_LOGPROB = -100, 1.0

#: What a group may say to Atropos's trainer that the plane does not take: without it another thing would be trained.
_REFUSED = ("advantages", "ref_logprobs", "distill_token_ids", "distill_logprobs", "images")


def serve(run: str, environment: Any, **options: Any) -> None:
    """Play an environment until the run is closed or its items are over; `work` is the same on asyncio.

    environment: a class of Atropos's BaseEnv, which its config_init configures, or an instance. An item is a group of group_size rollouts.
    slots: items at once. groups: how many items, without end where None. task: names an item's task; default: the environment's name.
    gateway, key, dir: where the gateway is, as for rondo.rollout.

    An error in the environment, and a completion that it gives no score, fails rollouts as failures of the machine: no rewards of 0.
    """
    asyncio.run(work(run, environment, **options))


async def work(
    run: str,
    environment: Any,
    *,
    slots: int = 4,
    groups: int | None = None,
    task: Callable[[Any], str] | None = None,
    **place: Any,
) -> None:
    """Play an environment until the run is closed or its items are over; see `serve`."""
    if isinstance(environment, type):
        config, _ = environment.config_init()  # type: ignore[attr-defined]
        environment = environment(config, ServerBaseline(), testing=True)  # its server is taken away below
    name = str(getattr(environment, "name", None) or type(environment).__name__)
    size, seconds = int(environment.config.group_size), float(environment.config.worker_timeout)
    environment.collect_trajectory = _one_rollout(environment.collect_trajectory)
    with ThreadPoolExecutor(slots * size, "atropos") as threads:
        async with openai.AsyncOpenAI(api_key="none", base_url="http://none", timeout=3600, max_retries=5) as client:
            environment.server = _Server(client, environment)
            await environment.setup()

            async def play(item: Any) -> None:
                start = partial(rollout, run, task(item) if task else name, group=secrets.token_hex(8), size=size, **place)
                await _Item(start, size, threads).play(environment, item, seconds if seconds > 0 else None)

            await _play_all(environment, play, slots, groups)


async def _play_all(environment: Any, play: Callable[[Any], Awaitable[None]], slots: int, groups: int | None) -> None:
    """Keep some items in hand until there is none, the run is closed, or one has failed that nothing on the log tells of."""
    busy: set[asyncio.Task[None]] = set()
    begun = 0
    try:
        while True:
            item = None
            if len(busy) < slots and (groups is None or begun < groups):
                item = environment.backlog.pop() if environment.backlog else await environment.get_next_item()
            if item is not None:
                busy.add(asyncio.ensure_future(play(item)))
                begun += 1
            elif not busy:
                return
            done, busy = await asyncio.wait(busy, timeout=0 if item is not None else None, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    except GatewayError as refused:
        if refused.code != "run_closed":
            raise
    finally:
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)


class _Played:
    """A rollout of an item: a conversation of the environment's with the model."""

    def __init__(self, started: asyncio.Future[Rollout]) -> None:
        self.started = started
        self.busy = False
        self.messages: list[Any] = []
        self.answers: list[str] = []
        #: Lists of tokens by which the environment may name it.
        self.keys: list[list[int]] = []

    def continues(self, messages: Sequence[Any]) -> bool:
        said = self.messages
        return 0 < len(said) < len(messages) and not self.busy and all(map(_same, said, messages))

    def said(self, last: list[str], text: str) -> bool:
        """Whether a text may be of this conversation, whose last answers are known."""
        answers = [answer.strip() for answer in self.answers]
        return answers[-len(last) :] == last != [] and all(answer in text for answer in answers)


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a["role"] == b["role"] and str(a.get("content") or "").strip() == str(b.get("content") or "").strip()


class _Scope:
    """What belongs together of an item: all of it, what one managed server has been asked, or one trajectory, which is one rollout."""

    def __init__(self, alone: bool = False) -> None:
        self.alone = alone
        self.rollouts: list[_Played] = []
        self.nodes: list[Any] = []

    def place(self, item: _Item, messages: Sequence[Any], n: int) -> list[_Played]:
        """The rollouts that answer a request: the one that it continues, and new ones."""
        if self.alone and n > 1:
            raise ValueError(f"collect_trajectory asks for {n} completions at once: a trajectory is one rollout")
        known = self.rollouts if self.alone else [r for r in self.rollouts if r.continues(messages)]
        found = [max(known, key=lambda r: len(r.messages))] if known else []
        new = [item.begin() for _ in range(n - len(found))]
        self.rollouts += new
        return found + new


#: The item that is played, and the trajectory of it.
_ITEM: contextvars.ContextVar[_Item] = contextvars.ContextVar("item")
_TRAJECTORY: contextvars.ContextVar[_Scope | None] = contextvars.ContextVar("trajectory", default=None)


def _one_rollout(collect: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    """collect_trajectory, so that whatever it asks is of one rollout, which has its score."""

    async def one(item: Any) -> Any:
        scope = _Scope(alone=True)
        before = _TRAJECTORY.set(scope)
        try:
            result = await collect(item)
        finally:
            _TRAJECTORY.reset(before)
        if isinstance(result[0], Mapping):
            for played in scope.rollouts:
                played.keys.append(list(result[0]["tokens"]))
        return result

    return one


class _Item:
    """An item of the environment's: a group of rollouts."""

    def __init__(self, start: Callable[..., Rollout], size: int, threads: ThreadPoolExecutor) -> None:
        self._start, self._size, self._threads = start, size, threads
        self.rollouts: list[_Played] = []
        self.scope = _Scope()

    def begin(self) -> _Played:
        """Start the next member of the group."""
        member = len(self.rollouts)
        if member == self._size:
            raise ValueError(f"it asks for more conversations than its group_size of {self._size}")
        self.rollouts.append(_Played(asyncio.ensure_future(self._call(self._start, member=member))))
        return self.rollouts[-1]

    async def _call(self, function: Callable[..., T], **arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, **arguments))

    async def play(self, environment: Any, item: Any, seconds: float | None) -> None:
        """Let the environment play an item, and end each of its rollouts."""
        _ITEM.set(self)
        outcomes: list[float | str]
        try:
            scored, backlog = await asyncio.wait_for(environment.collect_trajectories(item), seconds)
            if scored:
                scored = await environment.postprocess_histories(scored)
            outcomes = self._outcomes(environment, scored)
            environment.backlog.extend(backlog)
        except Exception as error:
            if not self.rollouts or isinstance(error, GatewayError):
                raise  # the log would not tell of it
            why = f"{type(error).__name__}: {error}"[:900]
            log.warning("an item fails: %s", why)
            outcomes = [why] * len(self.rollouts)
        if self.rollouts:
            outcomes += ["the environment began fewer conversations than its group_size"] * (self._size - len(outcomes))
            while len(self.rollouts) < self._size:
                self.begin()
        await asyncio.gather(*map(self._end, self.rollouts, outcomes))
        await environment.cleanup()

    async def _end(self, played: _Played, outcome: float | str) -> None:
        try:
            started = await played.started
            if isinstance(outcome, str):
                await self._call(started.finish, failure=outcome)
            else:
                await self._call(started.finish, reward=outcome)
        except GatewayError as refused:  # such as of a rollout that its deadline has ended
            log.warning("%s", refused)

    def _outcomes(self, environment: Any, scored: Any) -> list[float | str]:
        """A reward for each rollout, or why it has none."""
        outcomes: list[float | str] = ["the environment gave no score"] * len(self.rollouts)
        free = list(range(len(self.rollouts)))
        for tokens, mask, outcome in _rows(scored):
            # A conversation that ended where another one went on has the same tokens as that one had.
            found = [i for i in free if [tokens] == self.rollouts[i].keys[-1:]] or [i for i in free if tokens in self.rollouts[i].keys]
            if not found:  # an environment that makes its tokens itself
                said, text = _spoken(environment.tokenizer, tokens, mask), environment.tokenizer.decode(tokens)
                found = [i for i in free if self.rollouts[i].said(said, text)]
                found.sort(key=lambda i: -len(self.rollouts[i].answers))
            if not found:
                raise ValueError("it scores tokens that are of none of the item's conversations")
            free.remove(found[0])
            outcomes[found[0]] = outcome
        return outcomes


def _rows(scored: Any) -> Iterator[tuple[list[int], list[int], float | str]]:
    """Of each scored sample its tokens, its mask, and its reward or why it has none. ValueError for what the plane does not take."""
    for group in scored if isinstance(scored, list) else [scored] if scored else []:
        if group is None:
            continue
        for name in _REFUSED:
            if any(value is not None for value in group.get(name) or []):
                raise ValueError(f"it gives {name}, which the plane does not take")
        if group.get("group_overrides"):
            raise ValueError(f"it gives group_overrides {group['group_overrides']}, which the plane does not take")
        overrides = group.get("overrides") or []
        for i, (tokens, mask, score) in enumerate(zip(group["tokens"], group["masks"], group["scores"], strict=True)):
            outcome = _score(score)
            if i < len(overrides) and overrides[i]:
                outcome = f"the environment gives it overrides {overrides[i]}, which the plane does not take"
            yield list(tokens), list(mask), outcome


def _score(score: Any) -> float | str:
    """A score as a number, or why it is none."""
    try:
        number = math.nan if isinstance(score, str) else float(score)
    except (TypeError, ValueError):
        number = math.nan
    return number if math.isfinite(number) else f"its score is {score!r:.40}"


def _spoken(tokenizer: Any, tokens: Sequence[int], mask: Sequence[int]) -> list[str]:
    """What the model says in a sample, answer by answer: its stretches of tokens that are not masked."""
    stretches: list[list[int]] = []
    before = _IGNORED
    for token, label in zip(tokens, mask, strict=True):
        if label != _IGNORED and before == _IGNORED:
            stretches.append([])
        if label != _IGNORED:
            stretches[-1].append(token)
        before = label
    return [str(tokenizer.decode(stretch, skip_special_tokens=True)).strip() for stretch in stretches]


class _Server:
    """The environment's server: the gateway, in whose rollouts it asks."""

    def __init__(self, client: openai.AsyncOpenAI, environment: Any) -> None:
        self._client, self._environment = client, environment
        self.servers: list[Any] = []

    async def chat_completion(self, **request: Any) -> Any:
        """Ask for completions of a conversation."""
        return await self.ask(_ITEM.get().scope, request)

    async def completion(self, **_: Any) -> Any:
        """Nothing: a gateway holds conversations."""
        raise NotImplementedError("the gateway samples conversations: ask for a chat_completion")

    tokens_and_logprobs_completion = get_logprobs = completion

    @asynccontextmanager
    async def dedicated_server(self) -> AsyncIterator[_Server]:
        """This server."""
        yield self

    @asynccontextmanager
    async def managed_server(self, tokenizer: Any = None, **_: Any) -> AsyncIterator[_Managed]:
        """A server that knows the tokens of what it was asked and has answered."""
        yield _Managed(self)

    async def ask(self, scope: _Scope, request: dict[str, Any], *, tokens: bool = False) -> Any:
        """Ask for n completions, each in a rollout of its own."""
        if request.pop("split", "train") != "train":
            raise ValueError("what is asked for an evaluation is not of a rollout: ask another server")
        messages, n = list(request.pop("messages")), int(request.pop("n", None) or 1)
        for name in ("model", "skip_reasoning"):
            request.pop(name, None)
        item, alone = _ITEM.get(), _TRAJECTORY.get()
        asked = (alone or scope).place(item, messages, n)
        for played in asked:
            played.busy = True
        try:
            answers = await asyncio.gather(*(self._turn(played, messages, request, tokens) for played in asked))
        finally:
            for played in asked:
                played.busy = False
        for played, answer in zip(asked, answers, strict=True):
            message = answer.choices[0].message
            played.messages = [*messages, {"role": "assistant", "content": message.content}]
            played.answers.append(message.content or "")
            if tokens:
                self._note(scope, played, answer)
        whole = answers[0]
        for i, answer in enumerate(answers[1:], 1):
            answer.choices[0].index = i
            whole.choices.append(answer.choices[0])
        return whole

    async def _turn(self, played: _Played, messages: list[Any], request: dict[str, Any], tokens: bool) -> Any:
        started = await played.started
        client = self._client.with_options(base_url=started.base_url, api_key=started.api_key)
        if tokens:
            request = {**request, "logprobs": True, "extra_body": {**(request.get("extra_body") or {}), "return_token_ids": True}}
        return await client.chat.completions.create(model=started.model, messages=messages, **request)

    def _note(self, scope: _Scope, played: _Played, answer: Any) -> None:
        """Keep the tokens of a conversation as Atropos's managed server does: one that goes on takes the place of what it was."""
        choice = answer.choices[0]
        prompt, said = (answer.model_extra or {}).get("prompt_token_ids"), (choice.model_extra or {}).get("token_ids")
        if prompt is None or said is None or choice.logprobs is None:
            raise ValueError("the inference server gives no token ids, which a managed server needs")
        logprobs = [entry.logprob for entry in choice.logprobs.content]
        before = next((node for node in scope.nodes if node.tokens in played.keys and node.tokens == prompt[: len(node.tokens)]), None)
        mask, old = (before.masked_tokens, before.logprobs) if before else ([], [])
        between = len(prompt) - len(mask)
        whole = prompt + said
        node = SequenceNode(
            full_text=self._environment.tokenizer.decode(whole),
            tokens=whole,
            masked_tokens=[*mask, *[_IGNORED] * between, *said],
            logprobs=[*old, *[_NO_LOGPROB] * between, *logprobs],
            metadata={"finish_reason": choice.finish_reason},
        )
        played.keys.append(whole)
        if before is None:
            scope.nodes.append(node)
        else:
            scope.nodes[next(i for i, known in enumerate(scope.nodes) if known is before)] = node


class _Managed:
    """What Atropos calls a managed server."""

    def __init__(self, server: _Server) -> None:
        self._server, self._scope = server, _Scope()
        self.completion = server.completion

    async def chat_completion(self, **request: Any) -> Any:
        """Ask for completions of a conversation."""
        return await self._server.ask(self._scope, request, tokens=True)

    def get_state(self) -> dict[str, Any]:
        """The conversations so far, with their tokens: {"nodes": [SequenceNode, …]}."""
        return {"nodes": list(self._scope.nodes)}

    def reset(self) -> None:
        """Forget them."""
        self._scope.nodes.clear()
