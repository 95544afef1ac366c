"""vLLM on CPU follows a policy by the weight-transfer backend rondo: follow_transfer.py RONDO MODEL FOLDER. README.md lists the checks."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contract_vllm import VLLM
from exact import CLOSE
from follow import OTHER, apart, flip, logprobs
from follow_vllm import Follow, tie
from plane import until
from proxy import Exchange

BACKEND = ("--weight-transfer-config", '{"backend":"rondo"}')


class Transfer(Follow):
    """A server with the backend. `version` is the newest one."""

    def __init__(self, engine: VLLM, rondo: Path, model: Path, folder: Path) -> None:
        super().__init__(engine, rondo, model, folder)
        self.served, self.version = folder / "served", 0
        self.plane.open("first", self.proxy.url, 1, steps=0)

    def follow(self) -> float:
        """The next version is taken up."""
        self.version += 1
        self.trainer.publish(self.version, "first")
        self.side.activated(self.version)
        return self.right(self.version)

    def updates(self) -> list[Exchange]:
        return [e for e in self.proxy.said if e.path == "/update_weights"]

    def once(self, wanted: Callable[[Exchange], bool], do: Callable[[], Any]) -> None:
        """Do something before the next request that is wanted goes to the server."""

        def before(asked: Exchange) -> None:
            if wanted(asked):
                self.proxy.before = None
                do()

        self.proxy.before = before

    def failed(self, version: int) -> str:
        """What the side-car says of a version that the server has not taken up."""
        until("the version is refused", lambda: [n for n in self.side.notes("failed") if n.get("version") == version])
        return str(next(n for n in self.side.notes("failed") if n.get("version") == version)["error"])

    def refused(self, *harmed: Path) -> None:
        """Files that are damaged between verification and use are refused. The server keeps its label and weights, and is not lost.

        It takes up the mended files.
        """
        before, lost = self.probe(), len(self.side.notes("lost"))
        self.version += 1
        self.once(lambda asked: asked.path == "/start_weight_update", lambda: [flip(self.served / file) for file in harmed])
        self.trainer.publish(self.version, "first")
        said = self.failed(self.version)
        assert "keeps the version" in said, said
        assert self.label() == str(self.version - 1) and self.probe() == before and len(self.side.notes("lost")) == lost
        self.right(self.version - 1)
        for file in harmed:
            flip(self.served / file)
        self.side.activated(self.version)
        print(
            f"damaged: {said[:220]}; label and log-probabilities stay; "
            f"mended, version {self.version} within {self.right(self.version):.1e}",
            flush=True,
        )

    def wrong(self, first: dict[str, Any]) -> None:
        """An update that does not fit is refused, and so is what follows without a new beginning, and a second part without a first one."""
        before, said = self.probe(), []
        apply = {"update_info": {"digest": "x", "apply": True}}
        for path, body in (
            ("/start_weight_update", {}),
            ("/update_weights", {"update_info": {"digest": "x", "dir": str(self.served / f"v{self.version:06}"), **first}}),
            ("/update_weights", apply),
            ("/finish_weight_update", {"weight_version": "99"}),
            ("/start_weight_update", {}),
            ("/update_weights", apply),
        ):
            try:
                self.engine.ask("POST", path, body)
                said.append(200)
            except urllib.error.HTTPError as refused:
                said.append(refused.code)
        assert said == [200, 500, 500, 500, 200, 500], said
        assert self.label() == str(self.version) and self.probe() == before
        print(f"{first}: {said}, label and log-probabilities stay", flush=True)


def whole(binary: Path, model: Path, folder: Path) -> None:
    """On CPU versions are loaded whole, also those of a tied model."""
    folder.mkdir()
    base = tie(model, folder / "tied")
    check = Transfer(VLLM(base, folder, words=BACKEND), binary, base, folder)
    try:
        worst = max(check.follow() for _ in range(3))
        check.wrong({"files": {"model.safetensors": "0" * 64}})
        worst = max(worst, check.follow())
        check.refused(Path("v000005/model.safetensors"))
        assert apart(logprobs(check.model(1), OTHER), logprobs(check.model(5), OTHER)) > 100 * CLOSE, "the versions do not differ"
        print(f"whole: 5 versions within {worst:.1e}", flush=True)
    finally:
        check.end()


def sparse(binary: Path, model: Path, folder: Path) -> None:
    """Where the device computes with the weights themselves, the elements that changed are set in place."""
    folder.mkdir()
    plugin = folder / "plugin"
    (plugin / "plain_cpu-0.dist-info").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("plain_cpu.py"), plugin)
    (plugin / "plain_cpu-0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: plain_cpu\nVersion: 0\n")
    (plugin / "plain_cpu-0.dist-info/entry_points.txt").write_text("[vllm.general_plugins]\nplain_cpu = plain_cpu:register\n")
    fail = folder / "fail"
    more = {"PYTHONPATH": f"{plugin}{os.pathsep}{os.environ['PYTHONPATH']}", "RONDO_FAIL": str(fail)}
    check = Transfer(VLLM(model, folder, words=BACKEND, **more), binary, model, folder)
    try:
        worst = check.follow()
        assert [e.status for e in check.updates()] == [200, 200], "the first version"
        check.proxy.said.clear()
        check.serve()
        check.during(50)
        worst = max(worst, *(check.follow() for _ in range(4)))
        firsts = [e.request()["update_info"] for e in check.updates()[::2]]
        assert [e.status for e in check.updates()] == [200] * 8 and all(f.get("base") and f["changes"] for f in firsts), (
            "elements were not set"
        )
        moved = max(sum(Path(path).stat().st_size for path in f["changes"]) for f in firsts if Path(next(iter(f["changes"]))).exists())
        size = (check.served / "current/model.safetensors").stat().st_size
        assert not check.side.notes("whole"), check.side.notes("whole")
        print(f"sparse: 4 versions within {worst:.1e}, by files of {moved} bytes of {size}", flush=True)

        check.wrong({"base": "0" * 64})  # changes of another version

        # The files of changes are damaged: the version is loaded whole.
        check.once(lambda e: e.path == "/start_weight_update", lambda: flip(check.served / ".v000006.from000005/changes-00001.safetensors"))
        print(f"damaged changes: whole within {check.follow():.1e}, {[e.status for e in check.updates()[-3:]]}", flush=True)
        assert [e.status for e in check.updates()[-3:]] == [500, 200, 200]
        # Both are damaged.
        check.refused(Path(".v000007.from000006/changes-00001.safetensors"), Path("v000007/model.safetensors"))

        check.held()  # of what is sampled with half of the tensors set nobody knows the version

        # It fails when half of the tensors are set: nobody believes what is there, and the next try loads the version whole.
        fail.touch()
        check.version += 1
        check.trainer.publish(check.version, "first")
        said = check.failed(check.version)
        check.side.activated(check.version)
        assert check.side.notes("lost") and not fail.exists()
        print(f"half way: {said[:120]}; then version {check.version} within {check.right(check.version):.1e}", flush=True)

        # The side-car dies between the parts of an update, before and after the label is taken away.
        for apply in False, True:
            check.once(
                lambda e, apply=apply: e.path == "/update_weights" and e.request()["update_info"].get("apply", False) is apply,
                lambda: check.side.stop(signal.SIGKILL),
            )
            check.version += 1
            check.trainer.publish(check.version, "first")
            until("the side-car is killed", lambda: check.side.process.poll() is not None)
            check.side.start()
            check.side.activated(check.version)
            print(f"killed before part {1 + apply}: version {check.version} within {check.right(check.version):.1e}", flush=True)
        check.follow()
        assert check.updates()[-2].request()["update_info"].get("base"), "elements are not set any more"
    finally:
        check.end()


def main(binary: Path, model: Path, folder: Path) -> None:
    whole(binary, model, folder / "whole")
    sparse(binary, model, folder / "sparse")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
