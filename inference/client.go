package inference

import (
	"bytes"
	"cmp"
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
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/memory"
	"github.com/rondo-rl/rondo/inference/vocabulary"
	"github.com/rondo-rl/rondo/wording"
)

// Bounds of an answer, in bytes.
const (
	// maxResponse is the largest text; of some 300,000 tokens with ids and log-probabilities
	// the memory is spent before.
	maxResponse = 64 << 20
	// leastResponse is what a server may always answer, and perToken how much more for each token
	// that it was asked for and perByte for each byte of the request, whose ids come back.
	leastResponse = 4 << 20
	perToken      = 1 << 10
	perByte       = 16
	// repeating is how much larger a stream may be that has all of the answer so far in each event,
	// for each event and token: the average event has half of it, in some 60 bytes a token.
	repeating = 64
)

// The memory of all answers of this process that are read or in use, in bytes, and that of one: the
// text and the values in it, of which each costs perValue at most.
const (
	AnswersMemory = 320 << 20
	answerMemory  = 160 << 20
	perValue      = 32
)

// answers is the budget of the process, whichever service asks.
var answers = memory.New(AnswersMemory, answerMemory)

// bodyTime is how long a server may be silent within an answer that is no stream, where
// the caller does not say.
const bodyTime = runfile.DefaultBetweenBytes

// timeLimit is a limit of a run's turns that struck.
type timeLimit struct {
	key   string
	after time.Duration
}

// TimeLimit is the error of a turn that has taken longer than one of the keys of
// limits.turn_timeout allows.
func TimeLimit(key string, after time.Duration) error { return &timeLimit{key, after} }

func (l *timeLimit) Error() string {
	said := map[string]string{
		"first_byte":    "no answer of the inference server began",
		"between_bytes": "the inference server sent nothing more of an answer",
		"whole":         "no whole answer of the inference server came",
	}[l.key]
	return fmt.Sprintf("%s within %s, which is limits.turn_timeout.%s of the run: raise it if the server needs longer, or lower sampling.max_tokens",
		said, l.after, l.key)
}

// struck is the limit that ended a context, or else the error.
func struck(ctx context.Context, err error) error {
	var limit *timeLimit
	if cause := context.Cause(ctx); err != nil && errors.As(cause, &limit) {
		return limit
	}
	return err
}

// Timeout reports whether a limit of the run's turns struck.
func (f *Failure) Timeout() bool {
	var limit *timeLimit
	return errors.As(f.Err, &limit)
}

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
	// Aborted: the server took the request and gave it up half way, as one does that takes up new
	// weights. It is also Throttled: no try has failed.
	Aborted bool
	// Overflow is set where prompt and answer are longer together than the server's context.
	Overflow *Overflow
	// Refusal is why the server refuses what it was asked, one of the Refusal constants; "" where
	// it does not say that the request is wrong.
	Refusal string
	// OnlyOpenAI: the server refused fields that OpenAI's own API does not have; WithoutExtras is a
	// request that it may take.
	OnlyOpenAI bool
	Err        error

	said string // the server's own words
}

// Why a server refuses a request: it is Permanent.
const (
	RefusalOverflow = "overflow" // Overflow
	RefusalFields   = "fields"   // OnlyOpenAI
	RefusalFiltered = "filtered" // a filter refuses what the prompt holds
	RefusalUnknown  = "unknown"  // in words that nobody knows
)

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Client asks one OpenAI-compatible server.
type Client struct {
	HTTP   *http.Client
	APIKey string
	// MaxTokens is how many tokens are asked for, by which the size of an answer is bounded; 0: as
	// many as any model gives.
	MaxTokens int
	// Beside is how many bytes more an answer may have, for token columns.
	Beside int64
	// FirstByte bounds the time from a request to the header of its answer, which servers that do
	// not stream send when they have sampled all of it; 0 does not. BetweenBytes bounds the silence
	// within an answer; 0 is two minutes, and none within a stream, where a server may pause. The
	// context bounds the whole.
	FirstByte, BetweenBytes time.Duration
	// Follow is told what a chat's answer says while it comes, from a server that streams; nil
	// asks for the whole answer.
	Follow func(Delta)
	// Unstreamed says behind a Complete that the server does not stream, or in a way that cannot be
	// read: it is to be asked for whole answers.
	Unstreamed bool
}

// Complete asks for one turn; request is a Request, or what else is one in JSON. Its error is a
// *Failure that does not tell the key, whatever the server answered. The caller calls Done when the
// answer is of no more use to it: until then it counts against the memory that all answers share.
func (c *Client) Complete(ctx context.Context, endpoint string, request any) (*Response, error) {
	var answer Response
	share := answers.Share(endpoint)
	url := strings.TrimSuffix(endpoint, "/") + "/chat/completions"
	sent, waited := time.Now(), share.Waited()
	text, err := bodyOf(request)
	whole := c.Follow == nil
	if err == nil && !whole {
		whole, err = c.followed(ctx, url, text, &answer, share)
	}
	if err == nil && whole {
		sent, waited = time.Now(), share.Waited()
		if err = c.ask(ctx, url, text, &answer, share); err != nil {
			c.Unstreamed = false // it is not the stream that was wrong
		}
	}
	if err != nil {
		share.End()
		return nil, err
	}
	answer.asked = text.size()
	answer.share = share
	answer.timed(sent, share, waited)
	return &answer, nil
}

// ask posts a request and reads the answer. Its error is a *Failure that does not tell the key,
// unless the request is none in JSON.
func (c *Client) ask(ctx context.Context, url string, request, answer any, share *memory.Share) error {
	body, err := bodyOf(request)
	if err != nil {
		return err
	}
	failed := c.post(ctx, url, body, answer, share)
	if failed == nil {
		return nil
	}
	failed.Err = redactError(failed.Err, c.APIKey)
	return failed
}

// body is a request's, in parts that are sent as they are.
type body [][]byte

func bodyOf(request any) (body, error) {
	switch r := request.(type) {
	case body:
		return r, nil
	case Request:
		return r.parts()
	}
	whole, err := Encode(request)
	return body{whole}, err
}

func (b body) size() (n int) {
	for _, part := range b {
		n += len(part)
	}
	return n
}

func (b body) reader() io.Reader {
	var parts []io.Reader
	for _, part := range b {
		parts = append(parts, bytes.NewReader(part))
	}
	return io.MultiReader(parts...)
}

// post makes an HTTP request that can be sent a second time, as HTTP's client does where a
// connection was closed before.
func (b body) post(ctx context.Context, url string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, b.reader())
	if err != nil {
		return nil, err
	}
	req.ContentLength = int64(b.size())
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(b.reader()), nil }
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// Encode writes JSON with its texts as they are: written for HTML, a text of angle
// brackets is six times as long.
func Encode(request any) ([]byte, error) {
	if r, ok := request.(Request); ok { // the encoder would read what its method wrote, and write it again
		return r.MarshalJSON()
	}
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	err := e.Encode(request)
	return bytes.TrimSuffix(body.Bytes(), []byte("\n")), err
}

func (c *Client) post(ctx context.Context, url string, body body, answer any, share *memory.Share) *Failure {
	caller := ctx
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	req, err := body.post(ctx, url)
	if err != nil {
		return &Failure{Class: events.ClassEndpoint, Permanent: true, Err: err}
	}
	if c.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.APIKey)
	}
	resp, err := c.begin(req, cancel)
	if err != nil {
		var op *net.OpError
		f := &Failure{Class: events.ClassEndpoint, Err: struck(ctx, err)}
		f.Away = errors.As(err, &op) && op.Op == "dial" && !f.Exhausted()
		return f
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refused(ctx, resp, url, c.APIKey)
	}
	switch s := answer.(type) {
	case *streamed:
		if streams(resp) {
			most := c.mostStreamed(body.size())
			if s.repeats {
				most += repeating * int64(c.MaxTokens) * int64(max(mostEvents, c.MaxTokens/pieceTokens))
			}
			failure := c.stream(ctx, cancel, url, resp, most, s, share)
			if failure == nil {
				s.end()
			}
			return failure
		}
		answer = s.instead
	case *chunks:
		if streams(resp) {
			failure := c.stream(ctx, cancel, url, resp, c.mostStreamed(body.size()), s, share)
			if failure != nil {
				return failure
			}
			text, failure := s.whole(caller, url, share) // the connection may have been ended behind the answer
			if failure != nil {
				return failure
			}
			s.answer.streamed = true
			return c.decode(caller, url, text, s.answer, share)
		}
		answer = s.answer
	}
	silence := cmp.Or(c.BetweenBytes, bodyTime)
	stop := func() { cancel(TimeLimit("between_bytes", silence)) }
	return c.read(ctx, url, &timed{resp.Body, silence, stop}, resp.ContentLength, c.most(body.size()), answer, share)
}

// begin sends a request, and waits for the header of its answer.
func (c *Client) begin(req *http.Request, cancel context.CancelCauseFunc) (*http.Response, error) {
	if c.FirstByte > 0 {
		timer := time.AfterFunc(c.FirstByte, func() { cancel(TimeLimit("first_byte", c.FirstByte)) })
		defer timer.Stop()
	}
	return c.HTTP.Do(req)
}

// most is the size of the largest answer to a request, in bytes.
func (c *Client) most(request int) int64 {
	if c.MaxTokens <= 0 {
		return maxResponse
	}
	return min(maxResponse, c.mostStreamed(request)+c.Beside)
}

// mostStreamed is the size of the largest answer that comes as a stream, of which no more than
// an event is kept as text.
func (c *Client) mostStreamed(request int) int64 {
	if c.MaxTokens <= 0 {
		return maxResponse
	}
	return leastResponse + perToken*int64(c.MaxTokens) + perByte*int64(request)
}

// byteOrderMark begins the JSON of some proxies.
var byteOrderMark = []byte("\ufeff")

// read reads an answer, and has the memory for its text before it takes it.
func (c *Client) read(ctx context.Context, url string, body io.Reader, length, most int64, answer any,
	share *memory.Share) *Failure {
	text, err := share.Read(ctx, body, length, most)
	switch {
	case errors.Is(err, memory.ErrLong):
		return tooLong(url, most)
	case err != nil:
		return unread(ctx, url, err)
	}
	return c.decode(ctx, url, text, answer, share)
}

func tooLong(url string, most int64) *Failure {
	return &Failure{Class: events.ClassBadResponse, Permanent: true,
		Err: fmt.Errorf("%s answered more than %d bytes, the most that this request can have for an answer", url, most)}
}

// decode has the memory for the values of an answer before it takes it. The memory
// of its text is given back.
func (c *Client) decode(ctx context.Context, url string, whole []byte, answer any, share *memory.Share) *Failure {
	text := bytes.TrimPrefix(whole, byteOrderMark)
	rest, list := text, []byte(nil)
	if _, ok := answer.(*Response); ok {
		rest, list = lift(text)
	}
	if err := share.Grow(ctx, int64(len(text))+perValue*(memory.Values(rest)+
		int64(bytes.Count(list, []byte{','})))); err != nil {
		return unread(ctx, url, err)
	}
	if status, said := vocabulary.ErrorBody(text); status > 0 {
		return refusedAs(ctx, status, fmt.Sprintf("%s answered 200 with an error", url), said, c.APIKey)
	}
	if err := decode(text, rest, list, answer); err != nil {
		return &Failure{Class: events.ClassBadResponse, Err: fmt.Errorf("answer of %s: %w", url, wording.Plain(err))}
	}
	share.Shrink(int64(cap(whole)))
	return nil
}

// unread is the failure of an answer that could not be read to its end.
func unread(ctx context.Context, url string, err error) *Failure {
	if errors.Is(err, memory.ErrTooLarge) {
		return &Failure{Class: events.ClassBadResponse, Permanent: true,
			Err: fmt.Errorf("the answer of %s takes more than %d MiB of memory", url, answerMemory>>20)}
	}
	return &Failure{Class: events.ClassEndpoint, Err: fmt.Errorf("read answer of %s: %w", url, struck(ctx, err))}
}

// decode reads an answer, of which a list may have been taken out. One that is no plain list goes
// the long way, with all of the text.
func decode(text, rest, list []byte, answer any) error {
	ids, ok := digits(list)
	if list == nil || !ok {
		return unmarshal(text, answer)
	}
	err := unmarshal(rest, answer)
	answer.(*Response).putBack(ids)
	return err
}

// unmarshal reads JSON, also as Python writes it, with NaN and Infinity: these stand for numbers
// that a server does not have, and are read as null.
func unmarshal(text []byte, answer any) error {
	err := json.Unmarshal(text, answer)
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		if plain := withoutNaN(text); plain != nil {
			return json.Unmarshal(plain, answer)
		}
	}
	return err
}

// withoutNaN is a text with null in place of NaN, Infinity and -Infinity outside of its strings;
// nil where there are none.
func withoutNaN(text []byte) (plain []byte) {
	written, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == 'N' || c == 'I' || c == '-'):
			for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(text[i:], []byte(word)) {
					plain = append(append(plain, text[written:i]...), "null"...)
					i += len(word) - 1
					written = i + 1
					break
				}
			}
		}
	}
	if written == 0 {
		return nil
	}
	return append(plain, text[written:]...)
}

// timed bounds the silence within an answer; the waiting for memory between
// reads is not the server's.
type timed struct {
	io.Reader
	silence time.Duration
	stop    func()
}

func (t *timed) Read(p []byte) (int, error) {
	timer := time.AfterFunc(t.silence, t.stop)
	defer timer.Stop()
	return t.Reader.Read(p)
}

// refused reads an error answer.
func refused(ctx context.Context, resp *http.Response, url, key string) *Failure {
	f := refusedAs(ctx, resp.StatusCode, fmt.Sprintf("%s answered %d %s", url, resp.StatusCode,
		http.StatusText(resp.StatusCode)), errorBody(resp), key)
	if !f.Permanent {
		f.After = min(max(0, retryAfter(resp.Header.Get("Retry-After"), time.Now())), mostRetryAfter)
		f.Throttled = resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != ""
	}
	return f
}

// refusedAs reads what a server says with a status, or in place of one. A request that
// is wrong will not become right. Everything else may: a key is corrected, a model
// loaded, a server comes back.
func refusedAs(ctx context.Context, status int, said string, body []byte, key string) *Failure {
	reason := reasonOf(ctx, body, key)
	if reason != "" {
		said += ": " + reason
	}
	f := &Failure{Class: events.ClassEndpoint, Status: status, Err: errors.New(said), said: reason}
	f.Overflow = vocabulary.OverflowOf(status, body)
	wrong := status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge ||
		status == http.StatusUnprocessableEntity
	switch {
	case f.Overflow != nil:
		f.Refusal = RefusalOverflow
	case refusesExtras(status, string(body)):
		f.OnlyOpenAI, f.Refusal = true, RefusalFields
	case vocabulary.Filtered(status, body):
		f.Refusal = RefusalFiltered
	case wrong:
		f.Refusal = RefusalUnknown
	}
	f.Permanent = f.Refusal != ""
	f.Away = status == http.StatusBadGateway || status == http.StatusServiceUnavailable ||
		status == http.StatusGatewayTimeout
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
