package inference

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/memory"
	"github.com/rondo-rl/rondo/inference/vocabulary"
	"github.com/rondo-rl/rondo/wording"
)

// An answer can come as a stream of server-sent events: each holds the tokens since the last one,
// with their log-probabilities, and the last one why the answer ended. Versions of the weights may
// stand in any of them; where they are spans, these are of all tokens of the request so far.

// streamed is an answer that its server may send so.
type streamed struct {
	whole Response
	soFar soFar
	most  int // tokens
	// prompt is what the server was given. counted: it is named by how many tokens it has.
	prompt  []int32
	counted bool
	// part reads an event in the engine's own form, as what there is more of the answer. text is
	// how many bytes of its text the engine keeps.
	part func(read func(into any) *Failure) (*Response, error)
	text int
	// instead is what reads an answer that comes as a whole, and came that an event did.
	instead any
	came    bool
	// repeats: each event has the whole answer so far.
	repeats bool
	// follow looks at what there is behind each event but the last.
	follow func(s *soFar) error
}

// soFar are the tokens of a request under way. Each has its log-probability, and is charged with
// perValue bytes of memory.
type soFar struct {
	ids      []int32
	logprobs []float32
	versions []events.VersionSpan
	named    bool // the server has named the prompt
	held     int  // how many of the newest tokens may end the answer, and are told when the next event has come
}

// endTime is how long a stream may go on behind the end of its answer, as with the usage.
const endTime = 5 * time.Second

var (
	errBroken = errors.New("the stream ended within the answer")
	errBehind = fmt.Errorf("%w: the stream goes on behind the end of the answer", ErrTokens)
	errEnded  = errors.New("the answer has ended")
)

// joined is an answer that is made of events.
type joined interface {
	// event takes one of them; key is what its failure does not tell.
	event(ctx context.Context, url, key string, data []byte, share *memory.Share) *Failure
	// ended reports whether the answer has come to its end.
	ended() bool
	// done takes the server's word that it has sent all, and reports whether the
	// answer has come to its end.
	complete() bool
}

// stream reads an answer that comes as events. Until the first of them the server may be as silent
// as before an answer that comes as a whole, and within the answer where the caller bounds no
// silence. An answer that has come to its end is whole, whatever becomes of the connection. That is
// read to its end, so that it can be used again.
func (c *Client) stream(ctx context.Context, cancel context.CancelCauseFunc, url string, resp *http.Response,
	most int64, s joined, share *memory.Share) *Failure {
	limit := func(key string, after time.Duration) *timed {
		return &timed{Reader: resp.Body, silence: after, stop: func() { cancel(TimeLimit(key, after)) }}
	}
	const unbounded = 24 * time.Hour // the context bounds it
	body := limit("first_byte", cmp.Or(c.FirstByte, unbounded))
	lines := share.Lines(reader(func(p []byte) (int, error) { return body.Read(p) }), min(most, maxResponse))
	defer lines.End()
	var late *time.Timer
	defer func() {
		if late != nil {
			late.Stop()
		}
	}()
	for n, done := int64(0), false; ; {
		line, err := lines.Next(ctx)
		if n += int64(len(line)) + 1; err == nil && n > most {
			err = memory.ErrLong
		}
		switch {
		case err == nil:
		case s.ended():
			return nil
		case errors.Is(err, memory.ErrLong):
			return tooLong(url, most)
		case errors.Is(err, io.EOF):
			return &Failure{Class: events.ClassEndpoint, Err: fmt.Errorf("answer of %s: %w", url, errBroken)}
		default:
			return unread(ctx, url, err)
		}
		data, is := bytes.CutPrefix(line, []byte("data:"))
		if data = bytes.TrimSpace(data); !is || len(data) == 0 || done {
			continue
		}
		if string(data) == "[DONE]" {
			if done = true; !s.complete() {
				return &Failure{Class: events.ClassEndpoint, Err: fmt.Errorf("answer of %s: %w", url, errBroken)}
			}
			continue
		}
		body = limit("between_bytes", cmp.Or(c.BetweenBytes, unbounded))
		before := s.ended()
		if failure := s.event(ctx, url, c.APIKey, data, share); failure != nil &&
			(!before || errors.Is(failure, ErrTokens)) {
			return failure
		}
		if s.ended() && late == nil {
			late = time.AfterFunc(endTime, func() { cancel(errEnded) })
		}
	}
}

// stream asks for an answer as a stream, of which pieces are recorded. What of it is not told is
// recorded where it breaks off, or the server gives it up. One that has ended is asked for no more.
// again reports that the server does not stream.
func (t *turn) stream(ctx context.Context, url string, request any, s *streamed) (again bool, err error) {
	s.follow = func(s *soFar) error { return t.recorder.follow(ctx, s) }
	err = t.post(ctx, url, request, s)
	if !s.ended() || s.whole.Choices[0].gaveUp() {
		t.recorder.rest(ctx, &s.soFar)
	}
	return len(s.soFar.ids) == 0 && refusesStream(err), err
}

// end makes the answer of what has come.
func (s *streamed) end() {
	choice := &s.whole.Choices[0]
	choice.TokenIDs, choice.logprobs = s.soFar.ids, s.soFar.logprobs
	if choice.TokenIDs == nil && !s.whole.Aborted() {
		choice.TokenIDs = []int32{}
	}
	if spans := &choice.WeightVersions; spans.list == nil && !spans.broken &&
		slices.ContainsFunc(s.soFar.versions,
			func(v events.VersionSpan) bool { return v.Version != runfile.UnknownVersion }) {
		for _, v := range s.soFar.versions {
			spans.list = append(spans.list, versionSpan{version{v.Version, v.Version != runfile.UnknownVersion},
				v.Start, v.End})
		}
	}
}

// reader is a function that reads.
type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

// streams reports whether an answer is a stream of events.
func streams(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}

func (s *streamed) ended() bool {
	return len(s.whole.Choices) == 1 && s.whole.Choices[0].FinishReason != ""
}

func (s *streamed) complete() bool { return s.ended() }

// event takes one event of a stream. Its memory is given back but for that of its tokens,
// before anybody looks at these.
func (s *streamed) event(ctx context.Context, url, key string, data []byte, share *memory.Share) *Failure {
	s.came = true
	grown, before, text := perValue*memory.Values(data), len(s.soFar.ids), s.text
	if err := share.Grow(ctx, grown); err != nil {
		return unread(ctx, url, err)
	}
	failure := s.read(ctx, url, key, data)
	if more := int64(s.text - text); more > 0 {
		if err := share.Grow(ctx, more); err != nil {
			return unread(ctx, url, err)
		}
	}
	share.Shrink(grown - perValue*int64(len(s.soFar.ids)-before))
	if failure != nil || s.ended() {
		return failure
	}
	if err := s.follow(&s.soFar); err != nil {
		return &Failure{Class: events.ClassInternal, Err: err}
	}
	return nil
}

// read reads one event.
func (s *streamed) read(ctx context.Context, url, key string, data []byte) *Failure {
	part, err := s.part(func(into any) *Failure { return readEvent(ctx, url, key, data, into) })
	if err == nil {
		err = s.take(part)
	}
	var failure *Failure
	if err != nil && !errors.As(err, &failure) {
		failure = malformed(url, err)
	}
	return failure
}

// readEvent reads the JSON of an event, which may be an error.
func readEvent(ctx context.Context, url, key string, data []byte, part any) *Failure {
	if status, said := vocabulary.ErrorBody(data); status > 0 {
		return refusedAs(ctx, status, fmt.Sprintf("%s answered 200 with an error", url), said, key)
	}
	if err := unmarshal(data, part); err != nil {
		return malformed(url, wording.Plain(err))
	}
	return nil
}

// take adds the tokens of an event.
func (s *streamed) take(part *Response) error {
	if part.PromptTokenIDs != nil {
		if !slices.Equal(part.PromptTokenIDs, s.prompt) {
			return errPrompt(len(part.PromptTokenIDs), len(s.prompt))
		}
		s.soFar.named = true
	}
	if part.Usage.CompletionTokens > 0 {
		s.whole.Usage = part.Usage
	}
	if n := int(part.Usage.PromptTokens); s.counted && n > 0 {
		if n != len(s.prompt) {
			return errPrompt(n, len(s.prompt))
		}
		s.soFar.named = true
	}
	if len(part.Choices) == 0 { // usage alone
		return nil
	}
	if len(part.Choices) > 1 {
		return fmt.Errorf("%d choices instead of 1", len(part.Choices))
	}
	more := &part.Choices[0]
	ids, logprobs, err := sampled(*more)
	switch {
	case err != nil:
		return err
	case len(ids) != len(logprobs):
		return fmt.Errorf("%w: an event of the stream has %d token ids and %d log-probabilities", ErrTokens,
			len(ids), len(logprobs))
	case s.ended() && len(ids) > 0:
		return errBehind
	case len(s.soFar.ids)+len(ids) > s.most:
		return fmt.Errorf("%w: more than the %d tokens that were asked for", ErrTokens, s.most)
	}
	if err := more.namesTokens(len(s.soFar.ids)); err != nil {
		return err
	}
	if s.whole.Choices == nil {
		s.whole.Choices = choices{{}}
	}
	choice, begin := &s.whole.Choices[0], len(s.soFar.ids)
	s.soFar.ids, s.soFar.logprobs = append(s.soFar.ids, ids...), append(s.soFar.logprobs, logprobs...)
	if !s.ended() {
		choice.FinishReason, choice.StopReason = more.FinishReason, more.StopReason
	}
	if more.WeightVersions.list != nil || more.WeightVersions.broken {
		choice.WeightVersions = more.WeightVersions
	}
	s.soFar.label(part, begin)
	return nil
}

// label notes the versions of the tokens from one on, which came with an event.
func (s *soFar) label(part *Response, begin int) {
	if len(s.ids) > begin {
		s.versions = append(s.versions, events.VersionSpan{Version: part.labelled(runfile.UnknownVersion),
			Start: begin, End: len(s.ids)})
	}
	var said []events.VersionSpan
	for _, v := range part.Choices[0].WeightVersions.list {
		span := events.VersionSpan{Version: runfile.UnknownVersion, Start: v.start, End: v.end}
		if v.version.known {
			span.Version = v.version.number
		}
		said = append(said, span)
	}
	if len(said) > 0 && events.CheckVersionSpans(said, len(s.ids)) == nil {
		s.versions = said
	}
	if len(s.versions) > 1 {
		s.versions = events.SpansBetween(s.versions, 0, len(s.ids))
	}
	if len(s.versions) > events.MaxVersionSpans { // nothing that can be trusted
		s.versions = []events.VersionSpan{{Version: runfile.UnknownVersion, End: len(s.ids)}}
	}
}

// Words of servers that do not stream. An upstream is no stream.
var (
	ofStreams = regexp.MustCompile(`(?i)(^|[^a-z])stream`)
	denies    = regexp.MustCompile(`(?i)\b(not|no|cannot|unsupported|disabled)\b`)
)

// refusesStream reports whether a server says that it does not stream. A status that can mean
// anything else takes a plain word.
func refusesStream(err error) bool {
	var f *Failure
	if !errors.As(err, &f) || !ofStreams.MatchString(f.said) {
		return false
	}
	switch f.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusInternalServerError:
		return denies.MatchString(f.said)
	}
	return false
}
