"""python -m pytest examples/torch_grpo: what sampling and training have to agree on."""

import argparse
import json
import pathlib

import model
import safetensors.torch
import sampling
import serve
import tasks
import torch
import train
import vocabulary

from rondo.tensors import Tensors

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("read_file", "write", "grep")]
ASKED = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": "Write into answer.txt these numbers: 3 1 2"}]
OPTIONS = argparse.Namespace(learning_rate=1e-3, clip_low=0.2, clip_high=0.3, epochs=2, minibatches=2)


def ids(text):
    return [vocabulary.IDS[word] for word in text.split()]


def requests(count, temperature=1.0):
    prompts = [vocabulary.prompt([ASKED[0], {"role": "user", "content": "3 " * n}], TOOLS) for n in range(count)]
    return [sampling.Request(p, temperature, 8, seed) for seed, p in enumerate(prompts)]


def test_a_prompt_has_a_token_for_each_known_word():
    assert vocabulary.prompt(ASKED, TOOLS) == ids(
        "<tools> read_file write <system> <unknown> <user> <unknown> answer.txt <unknown> 3 1 2 <assistant>"
    )


def test_the_next_prompt_extends_prompt_and_answer_exactly():
    first = vocabulary.prompt(ASKED, TOOLS)
    for said in ("write answer.txt 2 1 3 <end>", "4 4 write answer.txt <end>", "1 write 2 write 3 <end>", "read_file 1 2 <end>"):
        content, call = vocabulary.parse(ids(said))
        answer = {"role": "assistant", "content": content, "tool_calls": [{"id": "call_0", "function": call}]}
        told = {"role": "tool", "tool_call_id": "call_0", "content": "Wrote answer.txt (5 bytes)."}
        assert vocabulary.prompt([*ASKED, answer, told], TOOLS)[: len(first) + len(ids(said))] == first + ids(said)


def test_tokens_spell_a_call_or_text():
    content, call = vocabulary.parse(ids("1 write answer.txt 2 1 3 <end>"))
    assert content == "1" and call["name"] == "write"
    assert json.loads(call["arguments"]) == {"file_path": "answer.txt", "contents": "2 1 3"}
    for text in ("write", "read_file", "1 2 3"):
        assert vocabulary.parse(ids(text + " <end>")) == (text, None)
    assert vocabulary.parse(ids("write answer.txt 1")) == ("write answer.txt 1", None)


def test_the_trainer_finds_the_samplers_log_probabilities():
    asked = requests(5, temperature=0.7)
    transformer = model.Transformer(seed=3)
    sampling.sample(transformer, asked)
    for r in asked:
        found = train.log_probabilities(transformer, torch.tensor([r.prompt + r.tokens]), 0.7)[0, len(r.prompt) - 1 :]
        torch.testing.assert_close(found, torch.tensor(r.logprobs), atol=1e-5, rtol=0)


def test_answers_do_not_depend_on_who_else_asks():
    together, transformer = requests(5), model.Transformer(seed=3)
    sampling.sample(transformer, together)
    for alone, other in zip(requests(5), together, strict=True):
        sampling.sample(transformer, [alone])
        assert alone.tokens == other.tokens


def test_the_loss_is_clipped_where_the_ratio_has_gone_far():
    batch = Tensors(
        loss_mask=torch.tensor([[False, True, True, True, True, False]]),
        advantages=torch.tensor([[0.0, 1, 1, 1, -1, 0]]),
        sampler_logprobs=torch.log(torch.tensor([[1, 0.5, 0.5, 0.5, 0.5, 1]])),
    )
    logprobs = torch.log(torch.tensor([[0.55, 0.75, 0.25, 0.9, 0.3]]))  # ratios 1.1, 1.5 → 1.3, 0.5 and 1.8
    assert torch.isclose(train.grpo_loss(logprobs, batch, 0.2, 0.3), torch.tensor(-(1.1 + 1.3 + 0.5 - 1.8) / 4))


class Batch:
    """Stands for a batch of a feed: rows of one length."""

    def __init__(self, rows):
        self.rows, self.step = rows, 1

    def __len__(self):
        return len(self.rows)

    def select(self, rows):
        return Batch([self.rows[i] for i in rows])

    def to_torch(self):
        names = ("input_ids", "loss_mask", "sampler_logprobs", "advantages")
        return Tensors({name: torch.stack(column) for name, column in zip(names, zip(*self.rows, strict=True), strict=True)})


def batch():
    row = torch.tensor(ids("<user> 3 <assistant> write answer.txt 3 <end>"))
    mask = torch.arange(7) > 2
    return Batch([(row, mask, -2.0 * mask, sign * mask) for sign in (1.0, -1.0, 0.5, -0.5)])


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path):
    once = train.Trainer(1, OPTIONS)
    once.train(batch(), 1)
    once.save(tmp_path / "checkpoint")
    again = train.Trainer(2, OPTIONS)
    again.load(tmp_path / "checkpoint")
    for trainer in (once, again):
        trainer.train(batch(), 1)
    assert again.step == 1
    for name, weights in once.model.state_dict().items():
        assert torch.equal(weights, again.model.state_dict()[name]), name


def test_a_learning_rate_of_0_learns_nothing():
    trainer = train.Trainer(1, argparse.Namespace(**{**vars(OPTIONS), "learning_rate": 0}))
    trainer.train(batch(), 1)
    for name, weights in model.Transformer(1).state_dict().items():
        assert torch.equal(weights, trainer.model.state_dict()[name]), name


def test_the_server_takes_up_what_the_trainer_publishes(tmp_path):
    trainer, sampler = train.Trainer(3, OPTIONS), sampling.Sampler(model.Transformer(seed=1))
    safetensors.torch.save_file(trainer.served(), tmp_path / "model.safetensors")
    assert serve.load(sampler, {"model_path": str(tmp_path), "weight_version": "7"})["success"] and sampler.version == 7
    asked = requests(3)
    for r in asked:
        sampler.complete(r)
    rows = max(len(r.prompt) + len(r.tokens) for r in asked)
    tokens = torch.tensor([r.prompt + r.tokens + [0] * (rows - len(r.prompt) - len(r.tokens)) for r in asked])
    sampled = torch.zeros(tokens.shape)
    for row, r in zip(sampled, asked, strict=True):
        row[len(r.prompt) : len(r.prompt) + len(r.tokens)] = torch.tensor(r.logprobs)

    class Sampled:  # stands for a batch
        def to_torch(self):
            return Tensors(input_ids=tokens)

        def logprob_gap(self, found, version, shifted):
            mask = sampled[:, 1:] != 0
            return float((found - sampled[:, 1:])[mask].abs().max())

    assert trainer.gap(Sampled(), 1.0) < 1e-5  # bfloat16 on both sides


def test_a_version_of_another_model_is_refused(tmp_path):
    sampler = sampling.Sampler(model.Transformer(seed=1))
    safetensors.torch.save_file({"head.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    for bad in ({}, {"model_path": str(tmp_path), "weight_version": "7"}, {"model_path": str(tmp_path / "none"), "weight_version": "7"}):
        try:
            serve.load(sampler, bad)
        except serve.Refused as error:
            assert error.status == 400 and sampler.version == 0
        else:
            raise AssertionError(bad)


class Published:
    """Stands for a feed: notes what is published, and fails where it is to."""

    def __init__(self):
        self.versions, self.fails = [], False

    def publish_weights(self, folder, version, through_step, base):
        if self.fails:
            raise OSError("killed")
        held = safetensors.torch.load_file(base / "model.safetensors") if base else None
        self.versions.append((version, safetensors.torch.load_file(folder / "model.safetensors"), held))


def test_each_version_is_published_by_what_changed_since_the_one_before(tmp_path):
    feed = Published()
    publisher, trainer = train.Publisher(feed, tmp_path / "run.published"), train.Trainer(1, OPTIONS)
    for step in range(3):
        trainer.train(batch(), 1)
        trainer.step = step + 1
        feed.fails = step == 1  # and what is published next begins from the last that was
        try:
            publisher.publish(trainer)
        except OSError:
            assert feed.fails
    (first, weights, none), (third, _, held) = feed.versions
    assert (first, none, third) == (1, None, 3)
    assert all(torch.equal(held[name], tensor) for name, tensor in weights.items())


def test_nonsense_is_refused():
    good = {"messages": ASKED, "tools": TOOLS}
    assert serve.read(good).prompt == vocabulary.prompt(ASKED, TOOLS)
    for bad in (
        {},
        {"messages": 5},
        {"messages": [{"role": "nobody", "content": ""}]},
        {**good, "tools": [5]},
        {**good, "temperature": float("nan")},
        {**good, "max_tokens": 0},
        {**good, "seed": 1 << 80},
        {"messages": [{"role": "user", "content": "1 " * 1000}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "write", "arguments": "[]"}}]}]},
    ):
        try:
            serve.read(bad)
        except serve.Refused as error:
            assert error.status == 400
        else:
            raise AssertionError(bad)


def test_no_task_is_in_both_packs(tmp_path: pathlib.Path):
    tasks.main(tmp_path)
    packs = [{task.name for task in (tmp_path / pack).iterdir()} for pack in ("train", "held-out")]
    assert [len(pack) for pack in packs] == [48, 16] and not packs[0] & packs[1]
