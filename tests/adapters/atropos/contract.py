"""rondo.atropos against Atropos's own BaseEnv: environments of three kinds on a live plane, whose model follows a script."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs/guide/nemo-gym.md"
sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(ROOT / "clients/python")]
os.environ |= {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}

from atroposlib.envs.base import BaseEnv, BaseEnvConfig, ScoredDataGroup
from atroposlib.envs.server_handling.server_baseline import ServerBaseline
from atroposlib.utils.tokenize_for_trainer import tokenize_for_trainer
from mended import binary
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rondo import atropos
from tests.conftest import Plane
from tests.scripted import gateway, logprobs, model, tokens

RUN = """
policy: scripted
endpoint: {url}
external: true
group_size: 8
feeds: [{{name: trainer, groups_per_batch: 1}}]
"""

#: Where the tokenizer of these environments is: bytes, as the scripted model has them, and turns between lines.
TOKENIZER = ""

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ':' }}{{ m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def tokenizer(folder: Path) -> str:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=made, chat_template=TEMPLATE).save_pretrained(str(folder))
    return str(folder)


class Sums(BaseEnv):
    """Sums whose completions are asked for at once, by a managed server. Its scores come in another order."""

    name = "sums"

    @classmethod
    def config_init(cls) -> Any:
        return BaseEnvConfig(group_size=4, tokenizer_name=TOKENIZER, use_wandb=False), ServerBaseline()

    async def setup(self) -> None:
        self.left = list(range(3))

    async def get_next_item(self) -> Any:
        return self.left.pop() if self.left else None

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("nobody evaluates")

    async def collect_trajectories(self, item: Any) -> Any:
        messages = [{"role": "user", "content": f"What is {item} + 2?"}]
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            said = await managed.chat_completion(messages=messages, n=self.config.group_size, max_tokens=64, temperature=1.0)
            nodes = managed.get_state()["nodes"]
        assert len(said.choices) == len(nodes) == self.config.group_size
        rows = list(zip([c.message.content for c in said.choices], nodes, strict=True))
        for text, node in rows:
            answer = tokens([{"role": "assistant", "content": text}])
            assert node.tokens == tokens(messages) + answer and node.masked_tokens == [-100] * len(tokens(messages)) + answer
            assert node.logprobs == [1.0] * len(tokens(messages)) + logprobs(answer)
        random.shuffle(rows)
        group = ScoredDataGroup(tokens=[], masks=[], scores=[])
        for text, node in rows:
            group["tokens"].append(node.tokens)
            group["masks"].append(node.masked_tokens)
            group["scores"].append(float(text.split()[0] == str(item + 2)))
        return group, []

    async def postprocess_histories(self, trajectories: Any) -> Any:
        return {**trajectories, "scores": [2 * s - 1 for s in trajectories["scores"]]}


class Guess(Sums):
    """A game of several turns, one trajectory at a time, that forgets what was thought. Its tokens are its tokenizer's."""

    name = "guess"

    async def setup(self) -> None:
        self.left = [11]

    async def collect_trajectories(self, item: Any) -> Any:
        return await BaseEnv.collect_trajectories(self, item)

    async def collect_trajectory(self, item: Any) -> Any:
        messages = [{"role": "user", "content": "Guess a number from 0 to 15."}]
        for _ in range(3):
            said = (await self.server.chat_completion(messages=messages, n=1)).choices[0].message.content
            messages.append({"role": "assistant", "content": said.split("</think>")[-1]})
            number = int(messages[-1]["content"])
            if number == item:
                break
            messages.append({"role": "user", "content": "Higher." if number < item else "Lower."})
        if messages[-1]["role"] == "user":
            messages.pop()
        made = tokenize_for_trainer(self.tokenizer, messages, train_on_all_assistant_turns=True)
        return {"tokens": made["tokens"], "masks": made["masks"], "scores": float(number == item)}, []

    async def postprocess_histories(self, trajectories: Any) -> Any:
        return trajectories


class Talks(Guess):
    """A conversation that goes on in the same managed server, for all members at once."""

    name = "talks"

    async def collect_trajectories(self, item: Any) -> Any:
        async with self.server.managed_server() as managed:
            talks: list[list[dict[str, str]]] = [[{"role": "user", "content": "Guess a number from 0 to 15."}] for _ in range(4)]
            for _ in range(2):
                said = await asyncio.gather(*(managed.chat_completion(messages=t) for t in talks))
                for talk, answer in zip(talks, said, strict=True):
                    talk += [{"role": "assistant", "content": answer.choices[0].message.content}, {"role": "user", "content": "Again."}]
            nodes = managed.get_state()["nodes"]
        assert len(nodes) == 4 and all(len({i for i, m in enumerate(n.masked_tokens) if m == -100}) < len(n.tokens) for n in nodes)
        return ScoredDataGroup(tokens=[n.tokens for n in nodes], masks=[n.masked_tokens for n in nodes], scores=[0.25, 0.5, 0.75, 1.0]), []


class Leaves(Talks):
    """Conversations that begin alike; the last one ends at once."""

    name = "leaves"

    async def collect_trajectories(self, item: Any) -> Any:
        asked = [{"role": "user", "content": "Guess a number from 0 to 15."}]
        async with self.server.managed_server() as managed:
            first = (await managed.chat_completion(messages=asked, n=4)).choices[0].message.content
            for _ in range(3):
                more = [*asked, {"role": "assistant", "content": first}, {"role": "user", "content": "Again."}]
                await managed.chat_completion(messages=more)
            nodes = managed.get_state()["nodes"]
        nodes.sort(key=lambda n: len(n.tokens))  # the short one first
        return ScoredDataGroup(tokens=[n.tokens for n in nodes], masks=[n.masked_tokens for n in nodes], scores=[0.0, 1.0, 1.0, 1.0]), []


class Old(Talks):
    """One turn by the server itself, and tokens of its tokenizer: scores are found by what was said."""

    name = "old"

    async def collect_trajectories(self, item: Any) -> Any:
        asked = [{"role": "user", "content": "Guess a number from 0 to 15."}]
        said = await self.server.chat_completion(messages=asked, n=4)
        group = ScoredDataGroup(tokens=[], masks=[], scores=[])
        for choice in sorted(said.choices, key=lambda c: c.message.content):
            made = tokenize_for_trainer(self.tokenizer, [*asked, {"role": "assistant", "content": choice.message.content}])
            group["tokens"].append(made["tokens"])
            group["masks"].append(made["masks"])
            group["scores"].append(float(choice.message.content.split("</think>")[-1]))
        return group, []


class Picky(Sums):
    """What is not scored, or scored in a way that the plane does not know, has no reward."""

    name = "picky"

    async def get_next_item(self) -> Any:
        return self.left.pop(0) if self.left else None

    async def setup(self) -> None:
        self.left = ["drops", "overrides", "advantages", "raises", "fewer", "more", "foreign"]

    async def collect_trajectories(self, item: Any) -> Any:
        n = {"fewer": 2, "more": 5}.get(item, 4)
        async with self.server.managed_server() as managed:
            await managed.chat_completion(messages=[{"role": "user", "content": item}], n=n)
            nodes = managed.get_state()["nodes"]
        if item == "raises":
            raise RuntimeError("the judge does not answer")
        kept = nodes[1:] if item == "drops" else nodes
        group = ScoredDataGroup(tokens=[list(n.tokens) for n in kept], masks=[n.masked_tokens for n in kept], scores=[1.0] * len(kept))
        if item == "overrides":
            group["overrides"] = [{}, {"set_advantage_to_zero": True}, {}, {}]
            group["scores"][2] = float("nan")
        if item == "advantages":
            group["advantages"] = [[0.5] * len(n.tokens) for n in kept]
        if item == "foreign":
            group["tokens"][0], group["masks"][0] = [1, 2, 3], [-100, 2, 3]
        return group, []

    async def postprocess_histories(self, trajectories: Any) -> Any:
        return trajectories


def opened(plane: Plane, run: str, url: str) -> None:
    file = plane.dir / f"{run}.yaml"
    file.write_text(RUN.format(url=url))
    plane.command("run", "open", run, "--file", str(file))


def facts(plane: Plane, run: str, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The run's facts of a type: of whom, and what they say."""
    for line in plane.command("events", "tail", run, "--json").splitlines():
        fact = json.loads(line)
        if fact["type"] == kind:
            yield fact["entity"], fact["data"]


def outcomes(plane: Plane, run: str) -> list[list[Any]]:
    """What became of each group's members, in their order: rewards, or why there is none."""
    ends = {name: data["reward"] for name, data in facts(plane, run, "rollout.scored")}
    ends |= {name: data["message"] for name, data in facts(plane, run, "rollout.failed")}
    return [[ends[f"{group}-{i}"] for i in range(data["size"])] for group, data in facts(plane, run, "group.opened")]


def played(plane: Plane, environment: Any, script: Any, **options: Any) -> list[list[Any]]:
    """The outcomes of an environment whose model says what a script says."""
    run = environment.name
    with model(script, exact=True) as served:
        opened(plane, run, served)
        atropos.serve(run, environment, **options)
    return outcomes(plane, run)


class Script:
    """A model that says one text after the other to a conversation that is asked again."""

    def __init__(self, *texts: str) -> None:
        self._texts, self._asked = texts, 0

    def __call__(self, messages: list[dict[str, Any]]) -> str:
        self._asked += 1
        return self._texts[(self._asked - 1) % len(self._texts)]


def completions_of_a_group(plane: Plane) -> None:
    """Each score, behind postprocess_histories, is that of the completion that it was given for."""
    said = played(plane, Sums, Script("2 apples", "3 pears", "4 plums", "4"))
    assert [len(group) for group in said] == [4, 4, 4] and {r for group in said for r in group} == {-1, 1}, said
    rewards = {name: data["reward"] for name, data in facts(plane, "sums", "rollout.scored")}
    turns = dict(facts(plane, "sums", "rollout.turn_sampled"))
    assert len(turns) == len(rewards) == 12
    for name, turn in turns.items():
        right = turn["content"].split()[0] == str(int(turn["prompt"][0]["content"].split()[2]) + 2)
        assert rewards[name] == 2 * right - 1 and turn["token_ids"] and len(turn["logprobs"]) == len(turn["token_ids"]), (
            turn,
            rewards[name],
        )


def trajectories_one_by_one(plane: Plane) -> None:
    """A trajectory is one rollout, also where it forgets its thoughts, and its tokens are none of the server's."""

    def guesses(messages: list[dict[str, Any]]) -> str:
        return "<think>Half.</think>7" if len(messages) == 1 else "<think>Up.</think>11"

    assert played(plane, Guess, guesses) == [[1, 1, 1, 1]]
    assert turns_of(plane, "guess") == [2, 2, 2, 2]


def conversations_that_go_on(plane: Plane) -> None:
    [group] = played(plane, Talks, Script("3", "4"))
    assert sorted(group) == [0.25, 0.5, 0.75, 1.0], group
    assert turns_of(plane, "talks") == [2, 2, 2, 2]
    [group] = played(plane, Leaves, Script("3"))
    turns = Counter(name for name, _ in facts(plane, "leaves", "rollout.turn_sampled"))
    assert sorted(group) == [0, 1, 1, 1] and turns_of(plane, "leaves") == [1, 2, 2, 2]
    assert {name: data["reward"] for name, data in facts(plane, "leaves", "rollout.scored")} == {name: n - 1 for name, n in turns.items()}


def scores_found_by_what_was_said(plane: Plane) -> None:
    [group] = played(plane, Old, Script("<think>No.</think>9", "3", "5", "<think>Yes.</think>1"))
    assert sorted(group) == [1, 3, 5, 9], group


def turns_of(plane: Plane, run: str) -> list[int]:
    """How many turns each rollout has."""
    return sorted(Counter(name for name, _ in facts(plane, run, "rollout.turn_sampled")).values())


def what_has_no_score_is_no_reward(plane: Plane) -> None:
    drops, overrides, advantages, raises, fewer, more, foreign = played(plane, Picky, Script("a", "b", "c", "d", "e"), slots=1)
    assert drops.count("the environment gave no score") == 1 and drops.count(1) == 3, drops
    assert overrides.count(1) == 2 and [o for o in overrides if "set_advantage_to_zero" in str(o)] and "its score is nan" in overrides, (
        overrides
    )
    assert all("it gives advantages" in o for o in advantages), advantages
    assert all("RuntimeError: the judge does not answer" in o for o in raises), raises
    assert fewer.count(1) == 2 and fewer.count("the environment began fewer conversations than its group_size") == 2, fewer
    assert all("more conversations than its group_size of 4" in o for o in more), more
    assert all("of none of the item's conversations" in o for o in foreign), foreign


def a_closed_run_ends_it(plane: Plane) -> None:
    class Endless(Sums):
        name = "endless"
        asked = 0

        async def get_next_item(self) -> Any:
            Endless.asked += 1
            if Endless.asked == 4:
                await asyncio.to_thread(plane.command, "run", "close", "endless")
            return 2

    said = played(plane, Endless, Script("4", "5"), slots=1)
    assert len(said) == 3 and Endless.asked == 4, (said, Endless.asked)


def what_fails_before_it_asks_is_raised(plane: Plane) -> None:
    class Broken(Sums):
        name = "broken"

        async def collect_trajectories(self, item: Any) -> Any:
            raise RuntimeError("there is no data")

    try:
        played(plane, Broken, Script("4"))
    except RuntimeError as error:
        assert "there is no data" in str(error)
    else:
        raise AssertionError("nobody learns of it")


def the_guide_s_lines_run(plane: Plane) -> None:
    [code] = [block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "rondo import atropos" in block]
    with model(Script("4", "5"), exact=True) as served:
        opened(plane, "shown", served)
        exec(code.replace("from sums_environment import Sums\n", "").replace('"sums"', '"shown"'), {"Sums": Sums})
    assert len(outcomes(plane, "shown")) == 3


def main() -> None:
    global TOKENIZER
    with tempfile.TemporaryDirectory() as name, gateway(binary(Path(name)), Path(name)) as (plane, url):
        TOKENIZER = tokenizer(Path(name) / "tokenizer")
        os.environ |= {"RONDO_DIR": str(plane.dir), "RONDO_GATEWAY": url}
        checks = (
            completions_of_a_group,
            trajectories_one_by_one,
            conversations_that_go_on,
            scores_found_by_what_was_said,
            what_has_no_score_is_no_reward,
            a_closed_run_ends_it,
            what_fails_before_it_asks_is_raised,
            the_guide_s_lines_run,
        )
        for check in checks:
            check(plane)
            print(f"{check.__name__} ok", flush=True)


if __name__ == "__main__":
    main()
