package tools

import (
	"context"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// added is a tool of a run's own: its program gets the arguments as JSON on its standard input, and answers as commands do.
func added(a events.AddedTool) (tool, error) {
	schema, err := a.Schema()
	if err != nil {
		return tool{}, err
	}
	document, err := a.Document()
	if err != nil {
		return tool{}, err
	}
	wall := time.Duration(a.Timeout)
	if wall == 0 {
		wall = sandbox.DefaultWall
	}
	d := Definition{
		Name: a.Name, Description: a.Description, Parameters: document, ReadOnly: a.ReadOnly, Destructive: !a.ReadOnly,
		Limits: Limits{AnswerBytes: MaxContent, Time: wall},
	}
	return tool{Definition: d, run: func(ctx context.Context, w *work, arguments string) (observation, error) {
		arguments = orEmpty(arguments)
		given, err := jsonschema.UnmarshalJSON(strings.NewReader(arguments))
		if err != nil {
			return refusal("the arguments are not JSON: %v", err), nil
		}
		if err := schema.Validate(given); err != nil {
			_, why, _ := strings.Cut(err.Error(), "\n") // the first line names the schema
			return refusal("the arguments are not what this tool takes:\n%s", why), nil
		}
		return runCommand(ctx, w, sandbox.Command{Argv: a.Command, Stdin: []byte(arguments), Wall: wall})
	}}, nil
}
