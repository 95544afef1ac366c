package inference

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// maxResponse bounds an answer: a million tokens with ids and log-probabilities fit.
const maxResponse = 64 << 20

// MaxToolCalls bounds the calls of one turn; a model that asks for more has lost its way.
const MaxToolCalls = 64

// Failure is an answer that is no turn, with its class and what to do.
type Failure struct {
	Class string
	// Status is the HTTP status of the answer, 0 where there was none.
	Status    int
	Permanent bool
	// After is how long the server asked to be left alone.
	After time.Duration
	// Throttled: the server is well and has too much to do, which is no try that failed.
	Throttled bool
	// Away: nobody was there to take the request, as while a server starts again.
	Away bool
	Err  error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Client asks one OpenAI-compatible server.
type Client struct {
	HTTP   *http.Client
	APIKey string
}

// Complete asks for one turn; request is a Request, or what else is one in JSON. Its error is a *Failure that does not tell the key, whatever the server answered.
func (c *Client) Complete(ctx context.Context, endpoint string, request any) (*Response, error) {
	var answer Response
	if err := c.ask(ctx, strings.TrimSuffix(endpoint, "/")+"/chat/completions", request, &answer); err != nil {
		return nil, err
	}
	answer.arrived = time.Now() // what comes later is no latency of the server's
	return &answer, nil
}

// ask posts a request and reads the answer. Its error is a *Failure that does not tell the key, unless the request is none in JSON.
func (c *Client) ask(ctx context.Context, url string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	failed := c.post(ctx, url, body, answer)
	if failed == nil {
		return nil
	}
	if text := failed.Error(); c.APIKey != "" && strings.Contains(text, c.APIKey) {
		failed.Err = errors.New(strings.ReplaceAll(text, c.APIKey, "[redacted]"))
	}
	return failed
}

func (c *Client) post(ctx context.Context, url string, body []byte, answer any) *Failure {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return &Failure{Class: events.ClassEndpoint, Permanent: true, Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	if c.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.APIKey)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		var op *net.OpError
		return &Failure{Class: events.ClassEndpoint, Away: errors.As(err, &op) && op.Op == "dial", Err: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refused(resp, url)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return &Failure{Class: events.ClassEndpoint, Err: fmt.Errorf("read answer of %s: %w", url, err)}
	case len(text) > maxResponse:
		return &Failure{Class: events.ClassBadResponse, Permanent: true, Err: fmt.Errorf("%s answered more than %d bytes", url, maxResponse)}
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return &Failure{Class: events.ClassBadResponse, Err: fmt.Errorf("answer of %s: %w", url, err)}
	}
	return nil
}

// quoted is how much of an error answer a fact repeats, in bytes.
const quoted = 500

// refused reads an error answer. A request that is wrong will not become right. Everything else may: a key is
// corrected, a model loaded, a server comes back.
func refused(resp *http.Response, url string) *Failure {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, quoted)) // what came of it is enough
	f := &Failure{Class: events.ClassEndpoint, Status: resp.StatusCode, Err: fmt.Errorf("%s answered %s: %s", url, resp.Status, text)}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		f.Permanent = true
	default:
		f.After = min(max(0, retryAfter(resp.Header.Get("Retry-After"), time.Now())), mostRetryAfter)
		f.Throttled = resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != ""
		f.Away = resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusGatewayTimeout
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
