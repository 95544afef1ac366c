package tools

import (
	"context"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// added is a tool of a run's own: its program gets the arguments as JSON on its standard input,
// and answers as commands do.
func added(a toolset.Added) (tool, error) {
	wall := time.Duration(a.Timeout)
	if wall == 0 {
		wall = sandbox.DefaultWall
	}
	d := Definition{
		Name: a.Name, Description: a.Description, ReadOnly: a.ReadOnly, Destructive: !a.ReadOnly,
		Limits: Limits{AnswerBytes: MaxContent, Time: wall},
	}
	takes, err := describe(&d, a.Arguments())
	return tool{Definition: d, run: func(ctx context.Context, w *work, arguments string) (observation, error) {
		arguments = orEmpty(arguments)
		if refused, err := takes.refused(arguments); err != nil {
			return observation{}, err
		} else if refused != nil {
			return *refused, nil
		}
		return runCommand(ctx, w, sandbox.Command{Argv: a.Command, Stdin: []byte(arguments), Wall: wall})
	}}, err
}
