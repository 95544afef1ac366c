"""A harness of one's own: a model, a workspace and a verdict by the task's verifier."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rondo

from .conftest import ROOT, Plane
from .scripted import MEND, Cut, gateway, model, open_run


@pytest.fixture(scope="module")
def live(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Plane, str]]:
    with gateway(binary, tmp_path_factory.mktemp("harness")) as served:
        yield served


def say(rollout: rondo.Rollout, text: str, *more: dict[str, str], **fields: object) -> str:
    """One turn, without a client's library."""
    headers = {"Authorization": f"Bearer {rollout.api_key}", "Content-Type": "application/json"}
    body: dict[str, Any] = {"model": rollout.model, "messages": [{"role": "user", "content": text}, *more], **fields}
    request = urllib.request.Request(rollout.base_url + "/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def test_rollout(live: tuple[Plane, str]) -> None:
    plane, url = live
    with model(lambda _: MEND) as served:
        open_run(plane, "mended", served)
        with rondo.rollout("mended", "shell-slugify", gateway=url, dir=plane.dir) as r:
            assert "slugify" in r.instruction
            assert r.sandbox.exec(["sh", "test.sh"]).exit_code == 1
            done = r.sandbox.exec(say(r, r.instruction))
            assert (done.exit_code, done.stderr) == (0, "")
            r.sandbox.write("notes/a.bin", b"\x00\xff")
            assert r.sandbox.read_bytes("notes/a.bin") == b"\x00\xff"
            r.sandbox.write("notes/b.txt", "ä\n", mode=0o600)
            assert r.sandbox.read("notes/b.txt") == "ä\n"
            assert r.sandbox.exec("cat; pwd; echo $A", stdin="in ", dir="lib", env={"A": "b"}).stdout == "in /app/lib\nb\n"
            assert r.sandbox.exec("sleep 100", timeout=0.2).timed_out
            with pytest.raises(rondo.GatewayError, match="no such file") as refused:
                r.sandbox.read("nothing")
            assert (refused.value.status, refused.value.code) == (422, "not_done")
        assert r.verdict().reward == 1
        with pytest.raises(rondo.GatewayError) as over:
            r.sandbox.exec("true")
        assert over.value.code == "rollout_over"
    told = rondo.read("mended", dir=plane.dir, frames="arrow").rollout(r.id)
    assert told.verdict is not None and (told.verdict.reward, told.verdict.exit_code, told.verdict.unread) == (1, 0, "")
    assert '-gt "$limit"' in told.diff() and "+++ b/lib/shorten.sh\n" in told.diff() and "+++ b/notes/b.txt\n" in told.diff()


def test_turns(live: tuple[Plane, str]) -> None:
    """A harness reads back what the server sampled, also when all is over: a turn that is cut, one that goes on, one that begins anew."""
    plane, url = live
    answers: list[dict[str, Any]] = []
    with model(lambda messages: Cut("I be") if len(messages) == 1 else "I mend it.", exact=True, answers=answers) as served:
        open_run(plane, "turns", served)
        with rondo.rollout("turns", "shell-slugify", gateway=url, dir=plane.dir) as r:
            assert r.turns() == []
            said = say(r, "Mend it.")
            say(r, "Mend it.", {"role": "assistant", "content": said}, {"role": "user", "content": "Go on."})
            say(r, "Sum it up.", response_format={"type": "json_object"})
        found = r.turns()
    assert [(t.segment, t.finish_reason, t.policy_version, list(t.version_spans), t.text_only, t.constrained) for t in found] == [
        (0, "length", -1, [], False, ()),
        (0, "stop", -1, [], False, ()),
        (1, "length", -1, [], False, ("response_format",)),
    ]
    for turn, answer in zip(found, answers, strict=True):
        choice = answer["choices"][0]
        assert turn.prompt_token_ids == answer["prompt_token_ids"] and turn.token_ids == choice["token_ids"]
        assert turn.logprobs == [token["logprob"] for token in choice["logprobs"]["content"]]


def test_checkout(live: tuple[Plane, str]) -> None:
    """What the block changes in the copy is changed in the sandbox, and nothing else; a block that raises changes nothing."""
    plane, url = live
    with model(lambda _: "I edit files.") as served:
        open_run(plane, "copied", served)
        with rondo.rollout("copied", "shell-slugify", gateway=url, dir=plane.dir) as r:
            r.sandbox.exec("mkdir -p a/.git .tool; touch a/.git/config .tool/settings; echo one >a/gone; ln -s gone a/link; echo x >a/run")
            r.sandbox.exec("ln -s /etc a/out")
            before = r.sandbox.exec("stat -c '%n %Y %a' *.sh").stdout
            say(r, "Mend it.")
            with r.sandbox.checkout(leave=[".tool"]) as folder:
                assert (folder / ".git/HEAD").exists() and not (folder / ".tool").exists() and not (folder / "a/.git").exists()
                assert subprocess.run(["git", "status", "--short"], cwd=folder, capture_output=True, text=True, check=True).stdout == ""
                mended = (folder / "lib/shorten.sh").read_text().replace('-ge "$limit"', '-gt "$limit"')
                (folder / "lib/shorten.sh").write_text(mended)
                (folder / "a/gone").unlink()
                (folder / "a/link").unlink()
                (folder / "a/link").symlink_to("run")
                (folder / "a/run").chmod(0o755)
                (folder / "new").mkdir()
                (folder / "new/b.bin").write_bytes(b"\x00\xff")
                (folder / ".tool").write_text("of the tool")
            assert not folder.exists()
            assert r.sandbox.exec("test -x a/run -a -f .tool/settings -a -f a/.git/config").exit_code == 0
            there = r.sandbox.exec("readlink a/link a/out && od -An -tx1 new/b.bin")
            assert (there.stdout, there.exit_code) == ("run\n/etc\n 00 ff\n", 0)
            assert r.sandbox.exec("test -e a/gone || test -e .git").exit_code == 1
            assert r.sandbox.exec("stat -c '%n %Y %a' *.sh").stdout == before
            with pytest.raises(FileNotFoundError), r.sandbox.checkout() as folder:  # noqa: PT012
                for _ in range(2):
                    (folder / "test.sh").unlink()
            assert r.sandbox.exec(["sh", "test.sh"]).exit_code == 0
        assert r.verdict().reward == 1


def test_unmended_and_failed(live: tuple[Plane, str]) -> None:
    plane, url = live
    with model(lambda _: "I give up.") as served:
        open_run(plane, "unmended", served)
        with rondo.rollout("unmended", "shell-slugify", gateway=url, dir=plane.dir) as r:
            say(r, "Mend it.")
        assert r.verdict().reward == 0
        told = rondo.read("unmended", dir=plane.dir, frames="arrow").rollout(r.id)
        assert told.verdict is not None and told.verdict.reward == 0 and told.diff() == ""
        assert told.verdict.output, "the failed tests are not named"
        with pytest.raises(KeyError), rondo.rollout("unmended", "shell-slugify", gateway=url, dir=plane.dir) as r:
            raise KeyError("what the harness knows")
        with pytest.raises(rondo.Failed, match="the harness raised KeyError$"):
            r.verdict()


def test_keys(live: tuple[Plane, str], tmp_path: Path) -> None:
    _, url = live
    with pytest.raises(rondo.GatewayError) as denied:
        rondo.rollout("mended", "shell-slugify", gateway=url, key="sk-not-for-you", dir=tmp_path)
    assert denied.value.status == 401 and "sk-not-for-you" not in str(denied.value)
    with pytest.raises(rondo.GatewayError) as gone:
        rondo.rollout("mended", "shell-slugify", gateway="http://127.0.0.1:9", key="sk-not-for-you", timeout=0.1)
    assert gone.value.status == 0 and "sk-not-for-you" not in str(gone.value)
    with pytest.raises(ValueError, match="give a URL such as http"):
        rondo.rollout("mended", "shell-slugify", gateway="127.0.0.1:9", key="sk-not-for-you")
    with pytest.raises(rondo.GatewayError, match="`rondo up` with `--gateway-listen` starts one"):
        rondo.rollout("mended", "shell-slugify", gateway="http://127.0.0.1:9", key="sk-not-for-you")  # not for a minute
    with pytest.raises(rondo.GatewayError, match='has no task "no-such-task"'):
        rondo.rollout("mended", "no-such-task", gateway=url, dir=live[0].dir)


def test_guide(live: tuple[Plane, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/guide/harness-workspaces.md shows runs as it is written there."""
    pytest.importorskip("openai")
    plane, url = live
    shown = re.search(r"```python\n(import openai\n.*?)```", (ROOT / "docs/guide/harness-workspaces.md").read_text(), re.DOTALL)
    assert shown is not None
    monkeypatch.setenv("RONDO_GATEWAY", url)
    with model(lambda messages: MEND if len(messages) == 1 else "Done.") as served:
        open_run(plane, "theirs", served)
        found: dict[str, Any] = {}
        exec(shown[1].replace("/srv/rondo", str(plane.dir)), found)
    assert found["verdict"].reward == 1
