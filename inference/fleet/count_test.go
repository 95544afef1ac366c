package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// TestCountAsksOneThatCounts: a prompt is counted by a server of the run that counts and does not
// rest, though all of its places are taken. That others do not count says nothing of them.
func TestCountAsksOneThatCounts(t *testing.T) {
	counts, refuses := tokenstest.New(t, "Qwen3", nil), tokenstest.New(t, "Qwen3", nil)
	refuses.Refuse = http.StatusNotFound
	f, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	cfg := runfile.DefaultRunConfig()
	cfg.Policy = "m"
	call := Call{Run: "r", Config: &cfg, Affinity: "a", Sampling: cfg.Sampling, Until: time.Now(),
		Tokens: func(model string) inference.Conversation {
			return inference.Conversation{Chat: true, Request: inference.Request{Model: model,
				Messages: []inference.Message{{Role: "user", Content: "Mend it."}}}}
		}}
	ask := func(urls ...string) (int, error) {
		cfg.Endpoints = nil
		for _, url := range urls {
			cfg.Endpoints = append(cfg.Endpoints, runfile.Endpoint{URL: url + "/v1", Slots: 1})
		}
		return f.Count(t.Context(), call)
	}
	want := len(counts.Tokenizer.Encode(counts.Template.Render([]tokenstest.Message{{Role: "user",
		Content: "Mend it."}}, true), false))
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
	r := f.replica(counts.URL+"/v1", "")
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
	if n, err := ask(counts.URL); n != 0 || !errors.As(err, &failed) || failed.After < time.Minute ||
		counts.Requests() != before {
		t.Errorf("a server that wants to be left alone has counted %d, %v", n, err)
	}
}

// scripted answers requests in place of servers.
type scripted func(r *http.Request) (status int, body string)

func (s scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := s(r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{Status: http.StatusText(status), StatusCode: status, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// counted counts a chat at two servers, which answer as the first and the second one that is asked.
// The name of the model is known to them as m.
func counted(t *testing.T, servers ...scripted) (int, error) {
	t.Helper()
	f, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	f.http = &http.Client{Transport: scripted(func(r *http.Request) (int, string) {
		if len(hosts) == 0 || hosts[len(hosts)-1] != r.URL.Host {
			hosts = append(hosts, r.URL.Host)
		}
		return servers[len(hosts)-1](r)
	})}
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoints = "m", []runfile.Endpoint{{URL: "http://a/v1", Slots: 1},
		{URL: "http://b/v1", Slots: 1}}[:len(servers)]
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return f.Count(ctx, Call{Run: "r", Config: &cfg, Sampling: cfg.Sampling,
		Tokens: func(model string) inference.Conversation {
			return inference.Conversation{Chat: true, Request: inference.Request{Model: model,
				Messages: []inference.Message{{Role: "user", Content: "Mend it."}}}}
		}})
}

// TestCountGoesOn: a server that hangs has its share of the time, and one that is away or does not
// say what it is guesses nothing. A request that is wrong is told at once, whatever was before.
func TestCountGoesOn(t *testing.T) {
	is := func(status int, body string) scripted {
		return func(r *http.Request) (int, string) {
			if strings.HasSuffix(r.URL.Path, "/models") {
				return http.StatusOK, `{"data":[{"id":"m","owned_by":"vllm"}]}`
			}
			return status, body
		}
	}
	counts := is(http.StatusOK, `{"token_ids":[1,2,3]}`)
	hangs := scripted(func(r *http.Request) (int, string) {
		<-r.Context().Done()
		return 0, ""
	})
	nameless := scripted(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			return http.StatusServiceUnavailable, ""
		}
		return http.StatusOK, `{"token_ids":[1]}`
	})
	halts := scripted(func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			return counts(r)
		}
		return hangs(r)
	})
	for name, c := range map[string]struct {
		servers []scripted
		want    int
		after   time.Duration
		said    string
		wrong   bool
	}{
		"one hangs":       {servers: []scripted{halts, counts}, want: 3, after: 15 * time.Second},
		"one is away":     {servers: []scripted{nameless, counts}, want: 3},
		"nobody knows it": {servers: []scripted{nameless}, said: "Service Unavailable"},
		"away, and a wrong": {servers: []scripted{is(http.StatusBadGateway, ""),
			is(http.StatusBadRequest, "roles must alternate")}, said: "alternate", wrong: true},
		"away, and no count": {servers: []scripted{is(http.StatusBadGateway, ""), is(http.StatusNotFound, "")},
			said: "502"},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			n, err := counted(t, c.servers...)
			if took := time.Since(began); n != c.want || took != c.after || (err != nil) != (c.said != "") {
				t.Fatalf("%s: counted %d, %v after %s", name, n, err, took)
			}
			var failed *inference.Failure
			if c.said != "" && (!errors.As(err, &failed) || !strings.Contains(err.Error(), c.said) ||
				failed.Permanent != c.wrong || errors.Is(err, inference.ErrUncounted)) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestCountOfAVersion: a server that has a version no more is told from one that does not count,
// and what it is stays known where a path that only counts is missing.
func TestCountOfAVersion(t *testing.T) {
	f, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	answer := `{"error":{"message":"The model m@3 does not exist."}}`
	f.http = &http.Client{Transport: scripted(func(*http.Request) (int, string) { return http.StatusNotFound, answer })}
	chat := true
	call := Call{Tokens: func(model string) inference.Conversation {
		return inference.Conversation{Chat: chat, Request: inference.Request{Model: model,
			Messages: []inference.Message{{Role: "user", Content: "Mend it."}}}}
	}}
	f.mu.Lock()
	at := target{replica: f.replica("http://a/v1", ""), model: "m", named: &activated{version: 3, model: "m@3"}}
	at.engine = inference.EngineVLLM
	f.mu.Unlock()
	if _, failed := f.count(t.Context(), call, at, 1); failed == nil || !failed.Throttled || failed.After != lagging ||
		errors.Is(failed, inference.ErrUncounted) || at.engine != inference.EngineVLLM {
		t.Errorf("a version that is gone: %+v, of a server that is %q", failed, at.engine)
	}
	answer = `{"detail":"Not Found"}`
	for _, chat = range []bool{true, false} {
		want := ""
		if chat {
			want = inference.EngineVLLM
		}
		if _, failed := f.count(t.Context(), call, at, 1); !errors.Is(failed, inference.ErrUncounted) ||
			at.engine != want {
			t.Errorf("chat %t: %v, of a server that is %q", chat, failed, at.engine)
		}
	}
}
