"""Makes the toy model: toy.py FOLDER, a Qwen3 of half a million weights that learns in a minute to think, call a tool and end its turn.

Random weights would say noise and never call a tool. This one draws its words from a few, so that its samples differ. It is float32, so
that an engine can be compared closely with transformers. Its heads have 64 dimensions, because vLLM on CPU refuses small ones. Its last
layer has weights of its own, because vLLM on CPU keeps the old ones of tied layers when it loads new weights.
"""

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

HERE = Path(__file__).resolve().parent
MARKS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
CONTEXT = 4096
STEPS = 150

THOUGHTS = [
    "I look at the file first.",
    "The report is wrong.",
    "A line is missing there.",
    "Let me try it.",
    "I should count the lines of the file.",
]
WORDS = ["", "", "I look.", "Now I try it."]
COMMANDS = ["ls", "cat README.md", "echo one >> notes.txt", "wc -l notes.txt", "sh test.sh", "pwd"]
LAST = ["Done.", "The report is right now.", "I could not find it."]


def answer(chance: random.Random) -> str:
    """What the model says in a turn. Half of its calls are written without spaces, as templates never write them."""
    text = f"<think>\n{chance.choice(THOUGHTS)}\n</think>\n\n"
    if chance.random() < 0.15:
        return text + chance.choice(LAST) + "<|im_end|>"
    words = chance.choice(WORDS)
    call = {"name": "run_terminal_cmd", "arguments": {"command": chance.choice(COMMANDS)}}
    spaces = (",", ":") if chance.random() < 0.5 else (", ", ": ")
    return text + words + "\n" * bool(words) + f"<tool_call>\n{json.dumps(call, separators=spaces)}\n</tool_call><|im_end|>"


def learn_tokens(texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 2,048 tokens."""
    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learnt.decoder = decoders.ByteLevel()
    learnt.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=2048 - len(MARKS + TAGS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=learnt, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=CONTEXT
    )
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS})
    tokenizer.add_tokens(TAGS)
    tokenizer.chat_template = (HERE / "template.jinja").read_text()
    return tokenizer


def lesson(tokenizer: PreTrainedTokenizerFast, texts: list[str], chance: random.Random, length: int) -> tuple[list[int], list[int]]:
    """A conversation that is cut from its front, and which of its tokens are to be learnt."""
    ids, learnt = [], []
    while len(ids) < length:
        said = chance.choice(texts)
        at = chance.randrange(len(said))
        before = tokenizer.encode(f"{said[at : at + chance.randrange(10, 1500)]}<|im_end|>\n<|im_start|>assistant\n")
        after = tokenizer.encode(answer(chance))
        ids += before + after
        learnt += [0] * len(before) + [1] * len(after)
    return ids[-length:], learnt[-length:]


def learn(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> None:
    chance = random.Random(1)
    steps = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0)
    for step in range(STEPS):
        for group in steps.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 20, (STEPS - step) / 40)
        rows = [lesson(tokenizer, texts, chance, 512) for _ in range(4)]
        ids, learnt = torch.tensor([row for row, _ in rows]), torch.tensor([row for _, row in rows])
        loss = model(ids, labels=torch.where(learnt > 0, ids, -100)).loss
        steps.zero_grad()
        loss.backward()
        steps.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


def make(folder: Path) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(2)
    chance = random.Random(0)
    texts = [path.read_text() for path in sorted((HERE.parents[1] / "docs/decisions").glob("0*.md"))]
    tokenizer = learn_tokens(texts + [answer(chance) for _ in range(500)])
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
        bos_token_id=None,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config)
    learn(model, tokenizer, texts)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
