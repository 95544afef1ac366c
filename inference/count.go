package inference

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// ErrUncounted means that a server does not count the tokens of a prompt.
var ErrUncounted = errors.New("the inference server does not count the tokens of a prompt")

// Count is how many tokens the prompt of a turn has, which nobody samples. Where turns
// are asked for as tokens the prompt is made as for one. Else the server renders the
// messages as it does for a chat:
//
//	vLLM       POST /v1/chat/completions/render
//	SGLang     POST /v1/tokenize
//	llama.cpp  POST /apply-template and POST /tokenize
//
// Its error is a *Failure that does not tell the key; one that is ErrUncounted says that the server
// has no such path, or that nobody can tell whether it counts what it samples behind.
func (c *Client) Count(ctx context.Context, endpoint string, conv Conversation) (int, error) {
	share := answers.Share(endpoint)
	defer share.End()
	prompt, err := promptOf(ctx, c.engine(strings.TrimSuffix(endpoint, "/"), conv, share, nil), conv)
	var f *Failure
	if lacksPath(err) && errors.As(err, &f) {
		f.Err = fmt.Errorf("%w: %w", ErrUncounted, f.Err)
	}
	return len(prompt), err
}

// uncounted is the failure of a chat of which a server makes another prompt where it counts.
func uncounted(what string) *Failure {
	return &Failure{Class: events.ClassEndpoint, Err: fmt.Errorf(
		"%w: it makes that of a chat with %s otherwise where it counts", ErrUncounted, what)}
}
