package generator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
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

// complete asks for one turn.
func (c *client) complete(ctx context.Context, endpoint string, request chatRequest) (*chatResponse, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	url := strings.TrimSuffix(endpoint, "/") + "/chat/completions"
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
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return nil, &failure{class: events.ClassEndpoint, err: fmt.Errorf("read answer of %s: %w", url, err)}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, c.refused(resp, url, answer)
	}
	if len(answer) > maxResponse {
		return nil, &failure{class: events.ClassBadResponse, permanent: true, err: fmt.Errorf("%s answered more than %d bytes", url, maxResponse)}
	}
	var parsed chatResponse
	if err := json.Unmarshal(answer, &parsed); err != nil {
		return nil, &failure{class: events.ClassBadResponse, err: fmt.Errorf("answer of %s: %w", url, err)}
	}
	return &parsed, nil
}

// refused reads an error answer. Requests that are wrong will not become right; all others may be repeated.
func (c *client) refused(resp *http.Response, url string, body []byte) *failure {
	text := string(body[:min(len(body), 500)])
	if c.apiKey != "" {
		text = strings.ReplaceAll(text, c.apiKey, "[redacted]")
	}
	f := &failure{class: events.ClassEndpoint, err: fmt.Errorf("%s answered %s: %s", url, resp.Status, text)}
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds >= 0 {
			f.after = min(time.Duration(seconds)*time.Second, time.Minute)
		}
	case code >= 400 && code < 500:
		f.permanent = true
	}
	return f
}

// turn turns an answer into the next turn of a rollout.
func turn(r *events.Rollout, answer *chatResponse, started time.Time, latency time.Duration) (events.TurnSampled, error) {
	var t events.TurnSampled
	if len(answer.Choices) != 1 {
		return t, fmt.Errorf("%d choices instead of 1", len(answer.Choices))
	}
	choice := answer.Choices[0]
	if len(choice.Message.ToolCalls) > maxToolCalls {
		return t, fmt.Errorf("%d tool calls in one turn, at most %d are allowed", len(choice.Message.ToolCalls), maxToolCalls)
	}
	t = events.TurnSampled{
		Turn: len(r.Turns), FinishReason: choice.FinishReason, PolicyVersion: r.Started.PolicyVersion,
		PromptTokens: answer.Usage.PromptTokens, CompletionTokens: answer.Usage.CompletionTokens,
		StartedAt: started.UTC(), LatencyMS: float64(latency) / float64(time.Millisecond),
	}
	if choice.Message.Content != nil {
		t.Content = *choice.Message.Content
	}
	if answer.WeightVersion != nil {
		t.PolicyVersion = int64(*answer.WeightVersion)
	} else if choice.MetaInfo != nil && choice.MetaInfo.WeightVersion != nil {
		t.PolicyVersion = int64(*choice.MetaInfo.WeightVersion)
	}
	seen := map[string]bool{}
	for i, c := range choice.Message.ToolCalls {
		id := c.ID
		if id == "" || seen[id] {
			id = fmt.Sprintf("call_%d_%d", t.Turn, i) // results are matched by id, so each call needs its own
		}
		seen[id] = true
		t.ToolCalls = append(t.ToolCalls, events.ToolCall{ID: id, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	return t, tokens(r, answer, &t)
}

// errTokens: the server's token ids and log-probabilities contradict each other or are none.
var errTokens = errors.New("token ids and log-probabilities cannot be used")

// tokens fills in token ids and log-probabilities, or marks the turn as text only where the server gave none.
func tokens(r *events.Rollout, answer *chatResponse, t *events.TurnSampled) error {
	choice := answer.Choices[0]
	prompt := answer.PromptTokenIDs
	if prompt == nil {
		prompt = choice.PromptTokenIDs
	}
	ids, logprobs, err := sampled(choice)
	if err != nil {
		return err
	}
	if len(prompt) == 0 || len(ids) == 0 || logprobs == nil {
		t.TextOnly = true
		return nil
	}
	if len(ids) != len(logprobs) {
		return fmt.Errorf("%w: %d ids, %d log-probabilities", errTokens, len(ids), len(logprobs))
	}
	for i, id := range ids {
		if id < 0 || logprobs[i] > 0 || logprobs[i]-logprobs[i] != 0 {
			return fmt.Errorf("%w: token %d is %d with log-probability %g", errTokens, i, id, logprobs[i])
		}
	}
	if i := slices.IndexFunc(prompt, func(id int32) bool { return id < 0 }); i >= 0 {
		return fmt.Errorf("%w: prompt token %d is %d", errTokens, i, prompt[i])
	}
	t.TokenIDs, t.Logprobs = ids, logprobs
	t.PromptTokens, t.CompletionTokens = len(prompt), len(ids)
	t.PromptDelta, t.NewSegment = delta(r, prompt)
	return nil
}

func sampled(choice chatChoice) (ids []int32, logprobs []float32, err error) {
	if m := choice.MetaInfo; m != nil && len(m.OutputTokenLogprobs) > 0 && choice.TokenIDs == nil {
		for _, triple := range m.OutputTokenLogprobs {
			var id int32
			var logprob float32
			if len(triple) < 2 || json.Unmarshal(triple[0], &logprob) != nil || json.Unmarshal(triple[1], &id) != nil {
				return nil, nil, fmt.Errorf("%w: meta_info.output_token_logprobs is malformed", errTokens)
			}
			ids, logprobs = append(ids, id), append(logprobs, logprob)
		}
		return ids, logprobs, nil
	}
	if choice.Logprobs != nil {
		for _, t := range choice.Logprobs.Content {
			logprobs = append(logprobs, t.Logprob)
		}
	}
	return choice.TokenIDs, logprobs, nil
}

// delta is what the prompt adds to the tokens of the current segment. Where the prompt is not an exact
// continuation (a template that drops reasoning, a re-tokenised answer), a new segment begins with all of it.
func delta(r *events.Rollout, prompt []int32) (added []int32, newSegment bool) {
	begin := len(r.Turns) - 1
	for begin >= 0 && !r.Turns[begin].NewSegment {
		begin--
	}
	if begin < 0 {
		return prompt, true
	}
	rest := prompt
	for _, t := range r.Turns[begin:] {
		for _, known := range [][]int32{t.PromptDelta, t.TokenIDs} {
			if t.TextOnly || len(rest) < len(known) || !slices.Equal(rest[:len(known)], known) {
				return prompt, true
			}
			rest = rest[len(known):]
		}
	}
	return rest, false
}
