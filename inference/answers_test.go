package inference

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/inference/memory"
)

// TestAnswersAreHeldToTheirMemory: however many servers answer with as much as they can, the
// process stays below what is stated.
func TestAnswersAreHeldToTheirMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // what is garbage is not what is measured
	list := func(element string, size int) string {
		return "[" + strings.Repeat(element+",", size/(len(element)+1)) + element + "]"
	}
	const large = 24 << 20
	bodies := []string{
		`{"choices":` + list(`{}`, large) + `}`,
		`{"choices":[{"message":{"tool_calls":` + list(`{}`, large) + `}}]}`,
		`{"choices":[{"logprobs":{"content":` + list(`{}`, large) + `}}]}`,
		`{"choices":[{"meta_info":{"output_token_logprobs":` + list(`[]`, large) + `}}]}`,
		`{"choices":[{"token_ids":` + list(`1`, large) + `}]}`,
		`{"choices":[{"message":{"content":"` + strings.Repeat("x", large) + `"}}]}`,
		`{"choices":[{"message":{"content":"` + strings.Repeat("x", 60<<20) + `"}}]}`,
		strings.Repeat(`data: {"choices":[{"delta":{"content":"`+strings.Repeat("x", 1000)+`"}}]}`+"\n\n", large/1000) +
			`data: {"choices":[{"finish_reason":"stop"}]}`,
		`data: {"choices":[{"finish_reason":"stop","token_ids":` + list(`1`, large) + `}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		fmt.Sscanf(r.URL.Path, "/%d/", &i)
		body := bodies[i%len(bodies)]
		if strings.HasPrefix(body, "data:") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		io.WriteString(w, body) // fmt would copy it
	}))
	defer server.Close()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	done := make(chan struct{})
	answered := 0
	var mu sync.Mutex
	for i := range 4 * len(bodies) {
		wg.Go(func() {
			c := Client{HTTP: http.DefaultClient, Follow: func(Delta) {}}
			got, err := c.Complete(t.Context(), fmt.Sprintf("%s/%d", server.URL, i), Request{})
			if err == nil {
				mu.Lock()
				answered++
				mu.Unlock()
			}
			got.Done()
		})
	}
	go func() { wg.Wait(); close(done) }()
	var most uint64
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-time.After(10 * time.Millisecond):
		}
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		most = max(most, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
	}
	t.Logf("%d answers, at most %d MiB", answered, most>>20)
	if most > 2*AnswersMemory { // with what waits to be collected
		t.Errorf("answers took %d MiB, stated are %d", most>>20, AnswersMemory>>20)
	}
	if answered < 8 { // the texts
		t.Errorf("%d were answered", answered)
	}
	if err := answers.Share("all").Grow(t.Context(), answerMemory); err != nil {
		t.Errorf("memory was lost: %v", err)
	}
	answers = memory.New(AnswersMemory, answerMemory)
}

// TestAnswersAreAsLongAsWhatWasAskedFor: who asks for few tokens is not sent a book.
func TestAnswersAreAsLongAsWhatWasAskedFor(t *testing.T) {
	size := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"choices":[{"message":{"content":"%s"}}]}`, strings.Repeat("x", size))
	}))
	defer server.Close()
	for _, c := range []struct {
		tokens, size int
		good         bool
	}{{100, leastResponse, true}, {100, leastResponse + 300*perToken, false},
		{1000, leastResponse + 300*perToken, true}, {0, 2 * leastResponse, true}} {
		size = c.size
		got, err := (&Client{HTTP: http.DefaultClient, MaxTokens: c.tokens}).Complete(t.Context(), server.URL,
			Request{})
		got.Done()
		if (err == nil) != c.good || err != nil && !strings.Contains(err.Error(), "answered more than") {
			t.Errorf("asked for %d tokens, an answer of %d bytes: %v", c.tokens, c.size, err)
		}
	}
}

// TestSlowAnswer: a server that has begun to answer is given up when it is silent for too long, and
// one that sends byte after byte is not.
func TestSlowAnswer(t *testing.T) {
	for name, c := range map[string]struct{ wait, ends time.Duration }{"nothing": {0, bodyTime},
		"a byte a minute": {time.Minute, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stopped := make(chan struct{})
				stop := sync.OnceFunc(func() { close(stopped) })
				began := time.Now()
				b := &timed{trickle{stopped, c.wait}, bodyTime, stop}
				var err error
				for range 40 {
					if _, err = b.Read(nil); err != nil {
						break
					}
				}
				stop()
				if took := time.Since(began); (err != nil) != (c.ends > 0) || err != nil && took != c.ends {
					t.Errorf("it ended after %s with %v", took, err)
				}
			})
		})
	}
}

// trickle is a body that sends a byte in each wait until it is stopped;
// without a wait it sends none.
type trickle struct {
	stopped <-chan struct{}
	wait    time.Duration
}

func (b trickle) Read([]byte) (int, error) {
	var next <-chan time.Time
	if b.wait > 0 {
		next = time.After(b.wait)
	}
	select {
	case <-b.stopped:
		return 0, io.ErrClosedPipe
	case <-next:
		return 0, nil
	}
}
