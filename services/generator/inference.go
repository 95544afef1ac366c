package generator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// maxResponse bounds an answer: a million tokens with ids and log-probabilities fit.
const maxResponse = 64 << 20

// maxToolCalls bounds the calls of one turn; a model that asks for more has lost its way.
const maxToolCalls = 64

// failure is an answer that is no turn, with its class and what to do.
type failure struct {
	class     string
	permanent bool
	// after is how long the server asked to be left alone.
	after time.Duration
	err   error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// client asks one OpenAI-compatible server.
type client struct {
	http   *http.Client
	apiKey string
}

// complete asks for one turn. Its error is a *failure that does not tell the key, whatever the server answered.
func (c *client) complete(ctx context.Context, endpoint string, request chatRequest) (*chatResponse, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	answer, failed := c.post(ctx, strings.TrimSuffix(endpoint, "/")+"/chat/completions", body)
	if failed == nil {
		return answer, nil
	}
	if text := failed.Error(); c.apiKey != "" && strings.Contains(text, c.apiKey) {
		failed.err = errors.New(strings.ReplaceAll(text, c.apiKey, "[redacted]"))
	}
	return nil, failed
}

func (c *client) post(ctx context.Context, url string, body []byte) (*chatResponse, *failure) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, &failure{class: events.ClassEndpoint, permanent: true, err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	if c.apiKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.apiKey)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &failure{class: events.ClassEndpoint, err: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, refused(resp, url)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, &failure{class: events.ClassEndpoint, err: fmt.Errorf("read answer of %s: %w", url, err)}
	case len(text) > maxResponse:
		return nil, &failure{class: events.ClassBadResponse, permanent: true, err: fmt.Errorf("%s answered more than %d bytes", url, maxResponse)}
	}
	var answer chatResponse
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, &failure{class: events.ClassBadResponse, err: fmt.Errorf("answer of %s: %w", url, err)}
	}
	return &answer, nil
}

// quoted is how much of an error answer a fact repeats, in bytes.
const quoted = 500

// refused reads an error answer. A request that is wrong will not become right. Everything else may: a key is
// corrected, a model loaded, a server comes back.
func refused(resp *http.Response, url string) *failure {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, quoted)) // what came of it is enough
	f := &failure{class: events.ClassEndpoint, err: fmt.Errorf("%s answered %s: %s", url, resp.Status, text)}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		f.permanent = true
	default:
		f.after = min(max(0, retryAfter(resp.Header.Get("Retry-After"), time.Now())), mostRetryAfter)
	}
	return f
}

// mostRetryAfter bounds how long a server can put a rollout off.
const mostRetryAfter = time.Minute

// retryAfter reads the header in both of its forms, seconds and a date; 0 when it is neither.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return at.Sub(now)
	}
	return 0
}

// turn turns an answer into the next turn of a rollout.
func turn(r *events.Rollout, answer *chatResponse, started time.Time, latency time.Duration) (events.TurnSampled, error) {
	var t events.TurnSampled
	if len(answer.Choices) != 1 {
		return t, fmt.Errorf("%d choices instead of 1", len(answer.Choices))
	}
	choice := answer.Choices[0]
	switch {
	case choice.FinishReason == "abort":
		return t, errors.New("the server aborted the turn") // as servers do that take up new weights
	case len(choice.Message.ToolCalls) > maxToolCalls:
		return t, fmt.Errorf("%d tool calls in one turn, at most %d are allowed", len(choice.Message.ToolCalls), maxToolCalls)
	}
	t = events.TurnSampled{
		Turn: len(r.Turns), FinishReason: choice.FinishReason, PolicyVersion: answer.policyVersion(r.Started.PolicyVersion),
		PromptTokens: max(0, answer.Usage.PromptTokens), CompletionTokens: max(0, answer.Usage.CompletionTokens),
		StartedAt: started.UTC(), LatencyMS: float64(latency) / float64(time.Millisecond), Content: choice.Message.Content,
	}
	t.ToolCalls = toolCalls(t.Turn, choice.Message.ToolCalls)
	return t, tokens(r, answer, &t)
}

// toolCalls takes a turn's calls over as the model wrote them. Results are matched by id, so each call gets one of
// its own where the server gave none.
func toolCalls(turn int, asked []chatToolCall) []events.ToolCall {
	var calls []events.ToolCall
	taken := map[string]bool{"": true}
	for i, c := range asked {
		id := c.ID
		for n := i; taken[id]; n++ {
			id = fmt.Sprintf("call_%d_%d", turn, n)
		}
		taken[id] = true
		calls = append(calls, events.ToolCall{ID: id, Name: c.Function.Name, Arguments: string(c.Function.Arguments)})
	}
	return calls
}
