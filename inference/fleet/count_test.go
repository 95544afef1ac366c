package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// TestCountAsksOneThatCounts: a prompt is counted by a server of the run that counts and does not rest, though all of its places are taken. That others do not count says nothing of them.
func TestCountAsksOneThatCounts(t *testing.T) {
	counts, refuses := tokenstest.New(t, "Qwen3", nil), tokenstest.New(t, "Qwen3", nil)
	refuses.Refuse = http.StatusNotFound
	f, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	cfg := runfile.DefaultRunConfig()
	cfg.Policy = "m"
	call := Call{Run: "r", Config: &cfg, Affinity: "a", Sampling: cfg.Sampling, Until: time.Now(), Tokens: func(model string) inference.Conversation {
		return inference.Conversation{Chat: true, Request: inference.Request{Model: model, Messages: []inference.Message{{Role: "user", Content: "Mend it."}}}}
	}}
	ask := func(urls ...string) (int, error) {
		cfg.Endpoints = nil
		for _, url := range urls {
			cfg.Endpoints = append(cfg.Endpoints, runfile.Endpoint{URL: url + "/v1", Slots: 1})
		}
		return f.Count(t.Context(), call)
	}
	want := len(counts.Tokenizer.Encode(counts.Template.Render([]tokenstest.Message{{Role: "user", Content: "Mend it."}}, true), false))
	for i := range 2 * tripAfter {
		call.Affinity = fmt.Sprint(i) // whichever is asked first
		if n, err := ask(refuses.URL); n != 0 || !errors.Is(err, inference.ErrUncounted) {
			t.Fatalf("a server that does not count has counted %d, %v", n, err)
		}
		if n, err := ask(refuses.URL, counts.URL); n != want || err != nil {
			t.Fatalf("counted %d, %v, want %d", n, err, want)
		}
	}
	states, _ := f.Look()
	for _, s := range states {
		if s.Failures != 0 || s.Open || s.InFlight != 0 {
			t.Errorf("counting was charged to %+v", s)
		}
	}
	f.mu.Lock()
	r := f.replica(counts.URL + "/v1")
	r.enter()
	f.mu.Unlock()
	if n, err := ask(counts.URL); n != want || err != nil {
		t.Errorf("a server without a free place has counted %d, %v", n, err)
	}
	f.mu.Lock()
	r.rest(time.Now(), time.Hour)
	f.mu.Unlock()
	before := counts.Requests()
	var failed *inference.Failure
	if n, err := ask(counts.URL); n != 0 || !errors.As(err, &failed) || failed.After < time.Minute || counts.Requests() != before {
		t.Errorf("a server that wants to be left alone has counted %d, %v", n, err)
	}
}
