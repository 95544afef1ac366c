"""openai-agents works on a task of a run: openai_agents.py RUN TASK."""

import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

import rondo


def work(run: str, task: str) -> rondo.Rollout:
    set_tracing_disabled(True)
    with rondo.rollout(run, task) as r:

        @function_tool
        def bash(command: str) -> str:
            """Run a line of shell in the workspace."""
            done = r.sandbox.exec(command)
            return f"exit code {done.exit_code}\n{done.stdout}{done.stderr}"

        model = OpenAIChatCompletionsModel(model=r.model, openai_client=AsyncOpenAI(base_url=r.base_url, api_key=r.api_key))
        Runner.run_sync(Agent(name="mender", instructions="Work with bash.", tools=[bash], model=model), r.instruction)
    return r


if __name__ == "__main__":
    print(work(*sys.argv[1:]).verdict().reward)
