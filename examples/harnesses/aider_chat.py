"""aider works on a task of a run: aider_chat.py RUN TASK."""

import os
import subprocess
import sys

import rondo

#: No questions, no commands on this machine, and no calls of the model but those that edit.
ALONE = (
    "--yes-always --no-suggest-shell-commands --no-detect-urls --no-auto-lint --no-auto-test --no-auto-commits --no-dirty-commits "
    "--no-gitignore --no-check-update --no-show-release-notes --no-show-model-warnings --analytics-disable --no-pretty "
    "--no-fancy-input --edit-format diff"
).split()


def work(run: str, task: str) -> rondo.Rollout:
    # aider would obey settings that it finds in the workspace, and its own notes are not the task's.
    with rondo.rollout(run, task) as r, r.sandbox.checkout(leave=(".aider*", ".env")) as folder:
        server = {"OPENAI_API_BASE": r.base_url, "OPENAI_API_KEY": r.api_key}
        command = ["aider", *ALONE, "--model", f"openai/{r.model}", f"--message={r.instruction}"]
        subprocess.run(command, cwd=folder, env={**os.environ, **server}, stdin=subprocess.DEVNULL, check=True)
    return r


if __name__ == "__main__":
    print(work(*sys.argv[1:]).verdict().reward)
