package inference

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// ErrUncounted means that a server does not count the tokens of a prompt.
var ErrUncounted = errors.New("the inference server does not count the tokens of a prompt")

// Count is how many tokens the prompt of a turn has, which nobody samples. Where turns are asked for as tokens the prompt is made as for one. Else the server renders the messages as it
// does for a chat:
//
//	vLLM       POST /tokenize
//	SGLang     POST /v1/tokenize
//	llama.cpp  POST /apply-template and POST /tokenize
//
// Its error is a *Failure that does not tell the key; one that is ErrUncounted says that the server has no such path.
func (c *Client) Count(ctx context.Context, endpoint string, conv Conversation) (int, error) {
	if choice := conv.toolChoice(); conv.Chat && conv.Engine == EngineSGLang && choice != `"auto"` && choice != `"required"` {
		return 0, &Failure{Class: events.ClassEndpoint, Err: fmt.Errorf("%w: SGLang leaves tools out of a chat with the tool_choice %.80s, and its /v1/tokenize does not", ErrUncounted, choice)}
	}
	share := answers.Share(endpoint)
	defer share.End()
	prompt, err := promptOf(ctx, c.engine(strings.TrimSuffix(endpoint, "/"), conv, share, nil), conv)
	var f *Failure
	if errors.As(err, &f) && !f.Permanent && slices.Contains([]int{http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}, f.Status) {
		f.Err = fmt.Errorf("%w: %w", ErrUncounted, f.Err)
	}
	return len(prompt), err
}
