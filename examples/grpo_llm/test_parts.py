"""python -m pytest examples/grpo_llm: the tasks, the curve, and what the trainer computes."""

import json
import random
import subprocess

import curve
import pytest
import tasks


def test_no_task_is_in_both_packs(tmp_path):
    tasks.main(tmp_path)
    asked = [{(task / "instruction.md").read_text() for task in (tmp_path / pack).iterdir()} for pack in ("train", "held-out")]
    assert [len(pack) for pack in asked] == [48, 16] and not asked[0] & asked[1]


@pytest.mark.parametrize("kind", tasks.KINDS)
def test_the_solution_leads_from_before_to_after(kind, tmp_path):
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        _, command, before, after = tasks.errand(kind, random.Random(seed))
        for path, content in before.items():
            (folder / path).write_text(content)
        subprocess.run(["sh", "-c", command], cwd=folder, check=True)
        assert {file.name: file.read_text() for file in folder.iterdir()} == after


def test_a_curve_has_a_line_for_each_run(tmp_path):
    for number, rate in enumerate((2e-5, 0)):
        (tmp_path / f"{number}.json").write_text(json.dumps({"seed": number, "lr": rate, "rewards": [0.1, 0.5]}))
    curve.draw(sorted(tmp_path.glob("*.json")), tmp_path / "curve.svg")
    drawn = (tmp_path / "curve.svg").read_text()
    assert drawn.count("<polyline") == 2 and "learning rate 0" in drawn


def test_the_loss_is_clipped_where_the_ratio_has_gone_far():
    torch, train = pytest.importorskip("torch"), pytest.importorskip("train")
    sampler, found = torch.log(torch.tensor([0.5, 0.5, 0.5, 0.5])), torch.log(torch.tensor([0.55, 0.75, 0.25, 0.9]))
    loss = train.grpo_loss(found, sampler, torch.tensor([1.0, 1, 1, -1]), 0.2, 0.3)  # ratios 1.1, 1.5 → 1.3, 0.5 and 1.8
    assert torch.isclose(loss, torch.tensor(-(1.1 + 1.3 + 0.5 - 1.8)))


def test_log_probabilities_are_those_of_the_sampled_tokens():
    torch, train = pytest.importorskip("torch"), pytest.importorskip("train")
    from rondo.tensors import Tensors

    class Cache(list):
        """What came before, for each row."""

        def batch_repeat_interleave(self, rows):
            self[0] = self[0].repeat(rows, 1)

    class Model:
        """A token's hidden state is that of the mean of all tokens so far."""

        table = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
        lm_head = staticmethod(lambda hidden: hidden)

        def model(self, input_ids, attention_mask=None, past_key_values=None, use_cache=False):
            whole = torch.cat([*(past_key_values or []), input_ids], 1)
            means = self.table[whole].cumsum(1) / torch.arange(1, whole.shape[1] + 1)[:, None]
            return Tensors(last_hidden_state=means[:, whole.shape[1] - input_ids.shape[1] :], past_key_values=Cache([whole]))

    model = Model()
    differing = [[False, False, True, True], [False, True, False, False]]
    alike = [[True, True, True, False], [True, True, False, False]]  # answers that begin alike, behind one prompt
    for begin, rows, sampled in (
        ([], [[1, 2, 3, 4], [4, 3, 0, 0]], differing),
        ([2], [[1, 2, 3, 4], [4, 3, 0, 0]], differing),
        ([2, 3, 1], [[4, 2, 3, 0], [4, 3, 0, 0]], alike),
        ([2, 3, 1], [[1, 2, 3, 0], [4, 3, 0, 0]], alike),
    ):
        ids, mask = torch.tensor([[*begin, *row] for row in rows]), torch.tensor([[False] * len(begin) + row for row in sampled])
        found = train.logprobs(model, Tensors(input_ids=ids, attention_mask=torch.ones_like(ids), loss_mask=mask), 0.7)
        whole = (model.model(ids).last_hidden_state[:, :-1] / 0.7).log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        torch.testing.assert_close(found, whole[mask[:, 1:]])
