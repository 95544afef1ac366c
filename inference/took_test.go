package inference

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference/memory"
)

// TestTimeOfParts: of an answer in parts the sampling counts, and not the rests between.
func TestTimeOfParts(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p parts
	var last *Response
	for i, took := range []time.Duration{3 * time.Second, 4 * time.Second} {
		last = &Response{sent: began.Add(time.Duration(i) * time.Minute), took: took, beside: &tokenColumns{},
			Choices: choices{{TokenIDs: tokenIDs{1}}}}
		last.Choices[0].Logprobs.Content = []sampledEntry{{Logprob: new(logprob)}}
		if err := p.add(last); err != nil {
			t.Fatal(err)
		}
	}
	whole := p.response([]int32{7}, last)
	turn, _, err := whole.Turn(0, 0, whole.SentAt())
	if err != nil || turn.SamplingTime() != 7*time.Second || !turn.StartedAt.Equal(began) {
		t.Errorf("%s from %s on, %v", turn.SamplingTime(), turn.StartedAt, err)
	}
}

// TestTimeOfPieces: the wait for memory within a piece is no time of its server.
func TestTimeOfPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(100, 40)
		first, kept, share := b.Share("a"), b.Share("b"), b.Share("a")
		var told []float64
		r := &recorder{share: share, tell: func(_ context.Context, p events.PieceSampled) error {
			time.Sleep(time.Minute) // the log's
			told = append(told, p.LatencyMS)
			return nil
		}}
		so := &soFar{named: true}
		r.request(time.Now())
		for range 2 {
			for _, grow := range []error{first.Grow(t.Context(), 30), kept.Grow(t.Context(), 40)} {
				if grow != nil {
					t.Fatal(grow)
				}
			}
			time.Sleep(time.Second)
			time.AfterFunc(5*time.Second, first.End)
			if err := share.Grow(t.Context(), 30); err != nil {
				t.Fatal(err)
			}
			so.ids, so.logprobs = append(so.ids, 7), append(so.logprobs, -1)
			so.versions = []events.VersionSpan{{End: len(so.ids)}}
			if err := r.piece(t.Context(), so); err != nil {
				t.Fatal(err)
			}
			share.End()
			kept.End()
		}
		if !slices.Equal(told, []float64{1000, 1000}) || share.Waited() != 10*time.Second {
			t.Errorf("the pieces took %v ms, and the share has waited %s", told, share.Waited())
		}
	})
}

// TestMemoryOfStreams: a stream takes the memory of an event while it is read, and behind it no
// more than a fixed part for each token, so that a long answer is not too large.
func TestMemoryOfStreams(t *testing.T) {
	const each, n = 100, 200
	entries := strings.Repeat(`{"token":"token_id:7","logprob":-1,"rank":1,"bytes":[1,2,3],"top_logprobs":[{"token":"token_id:7","logprob":-1}]},`, each)
	event := fmt.Sprintf(`data: {"choices":[{"token_ids":[%s],"logprobs":{"content":[%s]}}]}`+"\n\n",
		strings.TrimSuffix(strings.Repeat("7,", each), ","), strings.TrimSuffix(entries, ","))
	const most = 2 << 20
	share := memory.New(2*most, most).Share("a")
	seen := 0
	s := &streamed{part: plainPart, most: each * n, follow: func(s *soFar) error {
		seen = len(s.ids)
		return nil
	}}
	body := io.MultiReader(strings.NewReader(strings.Repeat(event, n)),
		strings.NewReader(`data: {"choices":[{"finish_reason":"stop"}]}`))
	if all := n * perValue * memory.Values([]byte(event)); all < 2*most {
		t.Fatalf("events of %d bytes in memory show nothing", all)
	}
	_, cancel := context.WithCancelCause(t.Context())
	resp := &http.Response{Body: io.NopCloser(body)}
	if failure := (&Client{}).stream(t.Context(), cancel, "a", resp, maxResponse, s, share); failure != nil ||
		seen != each*n {
		t.Fatalf("behind %d tokens: %v", seen, failure)
	}
	held := int64(perValue * each * n)
	if err := share.Grow(t.Context(), most-held+1); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("less than %d bytes are held: %v", held, err)
	}
	if err := share.Grow(t.Context(), most-held); err != nil {
		t.Errorf("more than %d bytes are held: %v", held, err)
	}
	line := bytes.Repeat([]byte("x"), most)
	share.End()
	failure := (&Client{}).stream(t.Context(), cancel, "a", &http.Response{Body: io.NopCloser(bytes.NewReader(line))},
		maxResponse, &streamed{part: plainPart}, share)
	if failure == nil || !strings.Contains(failure.Error(), "of memory") {
		t.Errorf("a line of as many bytes as there are in all: %v", failure)
	}
}

// TestMemoryOfChunks: what a chunk becomes is in memory that the answer has, also where it
// becomes longer than it was.
func TestMemoryOfChunks(t *testing.T) {
	const n = 10 << 10
	data := fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":"%s"}}]}`, strings.Repeat("\xff", n))
	share := memory.New(10*n, 5*n).Share("a")
	told := false
	c := &chunks{follow: func(Delta) { told = true }}
	if failure := c.event(t.Context(), "a", "", []byte(data), share); failure == nil ||
		!strings.Contains(failure.Error(), "of memory") || told {
		t.Errorf("%d bytes that become %d characters: %v", n, c.content.Len()/len("\uFFFD"), failure)
	}
}

// lingering is a server that sends a stream, keeps the connection open behind its end, and calls
// closed when that is closed. It answers what is no stream at once.
type lingering struct {
	events string
	closed func()
}

func (s lingering) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, ContentLength: -1}
	if body, err := io.ReadAll(r.Body); err != nil || !bytes.Contains(body, []byte(`"stream":true`)) {
		resp.Body = io.NopCloser(strings.NewReader(`{"choices":[{"finish_reason":"stop","message":{"content":"a"}}]}`))
		return resp, err
	}
	resp.Header.Set("Content-Type", "text/event-stream")
	linger := reader(func([]byte) (int, error) {
		<-r.Context().Done()
		s.closed()
		return 0, r.Context().Err()
	})
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(s.events), linger))
	return resp, nil
}

// TestChunksThatWait: an answer whose connection was ended behind its end waits for
// memory as any other does.
func TestChunksThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(2<<20, 1<<20)
		share, first, kept := b.Share("a"), b.Share("a"), b.Share("b")
		event := fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}`+"\n\n",
			strings.Repeat("x", 1<<10))
		server := lingering{strings.Repeat(event, 100) +
			`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n",
			func() { fill(t, first, kept) }}
		time.AfterFunc(endTime+time.Minute, first.End)
		var answer Response
		c := Client{HTTP: &http.Client{Transport: server}, Follow: func(Delta) {}}
		again, err := c.followed(t.Context(), "http://a", body{[]byte("{}")}, &answer, share)
		if err != nil || again || len(answer.Choices) != 1 || len(answer.Choices[0].Message.Content) != 100<<10 ||
			share.Waited() != time.Minute {
			t.Errorf("after %s: %v", share.Waited(), err)
		}
	})
}

// spending is a server that sends its first answer when the memory is spent.
type spending struct {
	http.RoundTripper
	spend func()
}

func (s *spending) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.spend != nil {
		s.spend()
		s.spend = nil
	}
	return s.RoundTripper.RoundTrip(r)
}

// TestTimeOfTheSecondTry: a whole answer that is asked for behind a stream took its own time,
// without what the stream has waited for memory.
func TestTimeOfTheSecondTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := answers
		answers = memory.New(2<<20, 1<<20)
		defer func() { answers = all }()
		first, kept := answers.Share("http://a"), answers.Share("b")
		server := &spending{lingering{`data: {"choices":[{"index":0,"delta":{"function_call":{"name":"f"}}}]}` + "\n\n",
			nil}, func() { fill(t, first, kept) }}
		time.AfterFunc(time.Minute, first.End)
		c := Client{HTTP: &http.Client{Transport: server}, Follow: func(Delta) {}}
		answer, err := c.Complete(t.Context(), "http://a", Request{})
		if err != nil || answer.took != 0 || answer.share.Waited() != time.Minute {
			t.Errorf("it took %s: %v", answer.took, err)
		}
	})
}

// fill takes all of a budget: what is kept for one share, and what is left to
// the tenant of the other.
func fill(t *testing.T, all, kept *memory.Share) {
	if kept.Grow(t.Context(), 3<<18) != nil {
		t.Error("nothing is kept for one share")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for n := int64(1 << 20); n > 0; n /= 2 {
		for all.Grow(over, n) == nil {
		}
	}
}
