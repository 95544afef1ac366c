"""smolagents works on a task of a run: smol_agents.py RUN TASK."""

import sys

from smolagents import OpenAIModel, ToolCallingAgent, tool

import rondo


def work(run: str, task: str) -> rondo.Rollout:
    with rondo.rollout(run, task) as r:

        @tool
        def bash(command: str) -> str:
            """Runs a line of shell in the workspace.

            Args:
                command: the line
            """
            done = r.sandbox.exec(command)
            return f"exit code {done.exit_code}\n{done.stdout}{done.stderr}"

        model = OpenAIModel(model_id=r.model, api_base=r.base_url, api_key=r.api_key)
        ToolCallingAgent(tools=[bash], model=model).run(r.instruction)
    return r


if __name__ == "__main__":
    print(work(*sys.argv[1:]).verdict().reward)
