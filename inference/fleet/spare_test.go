package fleet

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// TestSpareRoom: a call that wants room behind its prompt is refused where less is left, without a
// request, and the server has done nothing wrong. Where only the server knows, its refusal tells.
func TestSpareRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refusal = `{"error":{"message":"This model's maximum context length is 100 tokens. However, you requested 80 tokens in the messages (80 in the messages, 30 in the completion)."}}`
		says := reply{}
		f, farm := newFarm(t, map[string]func(int, time.Duration) reply{"a": func(int,
			time.Duration) reply {
			return says
		}}, nil)
		spare := func(prompt, limit int) error {
			c := call("r", 4, "a")
			c.Fit, c.Prompt, c.Config.Limits.Context, c.Sampling.MaxTokens = true, prompt, limit, 20
			c.Spare = func(limit int) int { return limit / 4 }
			_, err := f.Complete(t.Context(), c)
			return err
		}
		for range 2 * tripAfter {
			var failure *inference.Failure
			if err := spare(75, 100); !errors.As(err, &failure) || failure.Overflow == nil ||
				failure.Overflow.Limit != 100 || !errors.Is(err, errScarce) {
				t.Fatalf("25 tokens short of one were left: %v", err)
			}
		}
		if asked := farm.times("a"); len(asked) != 0 {
			t.Errorf("the server was asked %d times", len(asked))
		}
		if err := spare(74, 100); err != nil {
			t.Errorf("with room for a quarter: %v", err)
		}
		says = reply{status: http.StatusBadRequest, body: refusal}
		before := len(farm.times("a"))
		var failure *inference.Failure
		if err := spare(10, 0); !errors.As(err, &failure) || failure.Overflow == nil || failure.Overflow.Prompt != 80 {
			t.Errorf("a refusal that leaves 19 tokens: %v", err)
		}
		if asked := len(farm.times("a")) - before; asked > 2 { // its length, and the turn
			t.Errorf("the server was asked %d times", asked)
		}
		says.body = `{"error":{"message":"You passed 97 input tokens and requested 4 output tokens. However, the model's context length is only 100 tokens, resulting in a maximum input length of 96 tokens."}}`
		before = len(farm.times("a"))
		if err := spare(10, 0); !errors.As(err, &failure) || failure.Overflow == nil || failure.Overflow.Limit != 100 {
			t.Errorf("a refusal that does not count the prompt: %v", err)
		}
		if asked := len(farm.times("a")) - before; asked > 1 { // its length is known
			t.Errorf("the server was asked %d times", asked)
		}
		if r := f.replicas["http://a/v1"]; r == nil || r.failures != 0 || r.inFlight != 0 || r.open {
			t.Errorf("the server is known as %+v", r)
		}
	})
}
