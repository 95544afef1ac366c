// Package engine brings inference servers to a published version of their policy, and
// says which one they serve.
package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Version is what an engine is to load.
type Version struct {
	Policy  string
	Version int64
	Dir     string // of its files
}

// Label is how a version is called at an engine.
func (v Version) Label() string { return strconv.FormatInt(v.Version, 10) }

// Engine is one inference server.
type Engine interface {
	// Label asks the server which version it serves. A server that cannot be asked now is an error.
	Label(ctx context.Context) (string, error)
	// Load lets the server take up a version, and go on with its work, whatever becomes of
	// that. It may be repeated.
	Load(ctx context.Context, v Version) error
	// Resume lets a server go on that somebody may have left waiting with its version
	// loaded. It may be repeated.
	Resume(ctx context.Context) error
	// Refuse lets the server say of what it has loaded that it is no version, so that
	// nobody believes its tokens.
	Refuse(ctx context.Context, v Version) error
	// Logprobs asks for the log-probabilities of a prompt's tokens behind the first one, NaN of
	// those that were not asked for. ErrNoLogprobs where the server gives none.
	Logprobs(ctx context.Context, tokens []int32) ([]float64, error)
}

var (
	// ErrNoLogprobs means that servers of a kind give no log-probabilities of a prompt.
	ErrNoLogprobs = errors.New("servers of this kind give no log-probabilities of a prompt")

	errProbe = errors.New("the answer has not the log-probabilities of the prompt's tokens")
)

// Times of requests: a server that is paused may leave one unanswered for ever.
const (
	controlTime = 30 * time.Second
	loadTime    = 15 * time.Minute
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 8 << 20
)

// client asks one server.
type client struct {
	http *http.Client
	base string // without a slash at its end
	key  string
}

func newClient(base, key string, transport http.RoundTripper) (*client, error) {
	at, err := url.Parse(base)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" ||
		at.User != nil || at.RawQuery != "" {
		return nil, fmt.Errorf("%.200q is not the address of a server: want http://HOST:PORT", base)
	}
	return &client{base: strings.TrimSuffix(strings.TrimRight(base, "/"), "/v1"), key: key, http: &http.Client{
		Transport: transport,
		// A server that sends its clients elsewhere would get them to show the key there.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// statusError is an answer other than 200.
type statusError struct {
	what   string
	status int
	text   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d: %.300s", e.what, e.status, e.text)
}

// missing reports whether a server has no such route.
func missing(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.status == http.StatusNotFound
}

// ask sends a request, nil for a GET, and reads the answer into answer unless that is nil: JSON,
// or any text for a *[]byte.
func (c *client) ask(ctx context.Context, within time.Duration, path string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := c.do(ctx, path, request, answer); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s: %w", within, err)
		}
		return fmt.Errorf("%s: %w", c.base, err)
	}
	return nil
}

func (c *client) do(ctx context.Context, path string, request, answer any) error {
	method, body := http.MethodGet, io.Reader(nil)
	if request != nil {
		data, err := json.Marshal(request)
		if err != nil {
			return err
		}
		method, body = http.MethodPost, bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	what, _, _ := strings.Cut(path, "?")
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case len(data) > maxAnswer:
		return fmt.Errorf("%s: an answer of more than %d bytes", what, maxAnswer)
	case response.StatusCode != http.StatusOK:
		return &statusError{what, response.StatusCode, strings.TrimSpace(string(data))}
	case answer == nil:
		return nil
	}
	if text, plain := answer.(*[]byte); plain {
		*text = data
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("%s: the answer cannot be read: %w", what, err)
	}
	return nil
}

// nothing is a request without a body.
type nothing struct{}

// model asks a server under which name it serves its model.
func (c *client) model(ctx context.Context) (string, error) {
	var answer struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := c.ask(ctx, controlTime, "/v1/models", nil, &answer); err != nil {
		return "", err
	}
	if len(answer.Data) == 0 {
		return "", fmt.Errorf("%s serves no model", c.base)
	}
	return answer.Data[0].ID, nil
}
