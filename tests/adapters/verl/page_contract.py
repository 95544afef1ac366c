"""docs/guide/from-verl.md: verl composes its commands, has the fields that it names, and takes its data and its reward function."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
from bigram import tokenizer
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from v1_contract import glue
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.utils.dataset.rl_dataset import RLHFDataset

from tests.pages import blocks, files, words

commands = [shlex.split(body.replace("\\\n", " ")) for language, body in blocks("from-verl") if language == "text"]
assert [command[:3] for command in commands] == [["python3", "-m", "verl.trainer.main_ppo"]] * 2, commands
with initialize_config_module("verl.trainer.config", version_base=None):
    before, after = (compose("ppo_trainer", command[3:]) for command in commands)

absent = [word for word in words("from-verl") if OmegaConf.select(after, word, default=...) is ...]
assert not absent, absent
assert OmegaConf.select(after, "actor_rollout_ref.rollout.no_field", default=...) is ...
left_out = set(glue("sums", ".rondo")) - set(commands[1])
assert not left_out, left_out  # docs/guide/trainer-frameworks.md has them

with tempfile.TemporaryDirectory() as name:
    os.chdir(name)
    for file, text in files("from-verl").items():
        Path(file).write_text(text)
    subprocess.run([sys.executable, "data.py"], check=True)
    rows = RLHFDataset([before.data.train_files], tokenizer(), before.data)
    score = get_custom_reward_fn(before)
    for n in range(8):
        row = rows[n]
        assert str(row["raw_prompt"][-1]["content"]).startswith(f"What is {n} + 2?"), row
        told = {"data_source": row["data_source"], "ground_truth": row["reward_model"]["ground_truth"], "extra_info": row["extra_info"]}
        assert (score(solution_str=f" {n + 2}", **told), score(solution_str="no", **told)) == (1.0, 0.0)
print(f"docs/guide/from-verl.md: {len(commands)} commands compose, 8 rows are read and scored")
