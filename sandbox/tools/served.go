package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// Served is what a server answered to a call.
type Served struct {
	Content string
	Failed  bool // the call could not be done; Content says why
	// Waited is how long it took until the server was asked: it was started, or found, before.
	Waited time.Duration
}

// Servers asks a tool of a server. Its error is of the infrastructure: what the
// server did wrong is an answer.
type Servers func(ctx context.Context, server toolset.Server, tool string, arguments json.RawMessage) (Served, error)

// served is a tool of a server. A server in the sandbox may change anything there, whatever it says
// of its tools, and goes on after the call; one outside changes nothing there.
func served(server toolset.Server, t toolset.ServerTool) (tool, error) {
	d := Definition{
		Name: server.Called(t.Name), Description: t.Description, ReadOnly: t.ReadOnly, Destructive: !t.ReadOnly,
		Outside: server.IsRemote(),
		Limits:  Limits{AnswerBytes: MaxContent, Time: server.Wall()},
	}
	if server.IsRemote() {
		d.Effect = Nothing
	}
	takes, err := describe(&d, t.Arguments())
	return tool{Definition: d, stays: !server.IsRemote(),
		run: func(ctx context.Context, w *work, arguments string) (observation, error) {
			arguments = orEmpty(arguments)
			if !json.Valid([]byte(arguments)) {
				return refusal("the arguments are not JSON"), nil
			}
			if checkable(t.Parameters, arguments) { // otherwise the server says what is wrong
				if refused, err := takes.refused(arguments); err != nil || refused != nil {
					return *cmp.Or(refused, &observation{}), err
				}
			}
			answer, err := w.servers(ctx, server, t.Name, json.RawMessage(arguments))
			return observation{content: answer.Content, failed: answer.Failed, waited: answer.Waited}, err
		}}, err
}
