package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestFaultsOfTheServer: what a server does wrong is told in the terms of the API, and is no turn.
func TestFaultsOfTheServer(t *testing.T) {
	t.Parallel()
	calls := [][2]string{}
	for range 65 {
		calls = append(calls, [2]string{"f", "{}"})
	}
	const secret = "sk-not-for-you"
	for name, c := range map[string]struct {
		said   said
		status int
		want   []string // parts of the answer
	}{
		"asks to wait": {said{status: 429, raw: "later", header: map[string]string{"Retry-After": "7"}}, 429,
			[]string{"rate_limit_exceeded", "later"}},
		"throttles":   {said{status: 429, raw: "later"}, 429, []string{"rate_limit_exceeded"}},
		"is broken":   {said{status: 500, raw: "oops"}, 502, []string{"endpoint", "500", "oops"}},
		"is starting": {said{status: 503, raw: "soon"}, 502, []string{"503"}},
		"takes it for wrong": {said{status: 400,
			raw: "maximum context length is 8 tokens. However, you requested 80 tokens (80 in the messages, 30 in the completion)"}, 400,
			[]string{"context_length_exceeded", "maximum context length is 8"}},
		"tells our key":     {said{status: 401, raw: "wrong key " + secret}, 502, []string{"[redacted"}},
		"says nonsense":     {said{raw: "<html>"}, 502, []string{"bad_response"}},
		"says nothing":      {said{raw: `{"choices":[]}`}, 502, []string{"0 choices"}},
		"says two things":   {said{raw: `{"choices":[{},{}]}`}, 502, []string{"2 choices"}},
		"gives up":          {said{raw: `{"choices":[{"finish_reason":"abort"}]}`}, 502, []string{"aborted"}},
		"breaks off":        {said{content: strings.Repeat("x", 100000), cut: true}, 502, []string{"endpoint"}},
		"calls without end": {said{calls: calls}, 502, []string{"65 tool calls"}},
		"is ahead": {said{raw: `{"weight_version":9,"choices":[{"finish_reason":"stop","message":{"content":"a"}}]}`},
			409, []string{"policy_version 9"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, func(n int, _ ask) said {
				// who says that to a stream is asked for the whole answer
				if n == 0 || n == 1 && name == "says nonsense" {
					return c.said
				}
				return said{content: "well again"}
			})
			p := newPlane(t, b.url, nil)
			p.url = p.serveFleet(nil, func(o *fleet.Options) { o.Keys = fleet.Everywhere(secret) })
			m := p.start(nil)
			got := p.post(m.chat(), map[string]any{"messages": []message{user("a")}, "stream": c.said.content == ""},
				c.status, nil)
			for _, part := range c.want {
				if !strings.Contains(string(got.body), part) {
					t.Errorf("the answer does not say %q: %s", part, got.body)
				}
			}
			if strings.Contains(string(got.body), secret) {
				t.Errorf("the answer tells the key: %s", got.body)
			}
			// a server that aborts turns takes up weights, and is back soon
			patient := c.status == 429 || name == "gives up"
			if after := got.header.Get("Retry-After"); patient != (after != "") ||
				c.said.header != nil && after != "7" {
				t.Errorf("Retry-After is %q", after)
			}
			p.say(m, user("a"))
			if turns := p.rollout(m).Turns; len(turns) != 1 || turns[0].Content != "well again" {
				t.Errorf("turns are %+v", turns)
			}
		})
	}
}

// TestTokensThatContradict: an answer whose tokens cannot be trusted is good for the
// harness, and for no training.
func TestTokensThatContradict(t *testing.T) {
	t.Parallel()
	b := newBackend(t, func(int, ask) said {
		return said{raw: `{"prompt_token_ids":[1],"choices":[{"finish_reason":"stop","message":{"content":"a"},"token_ids":[2,3],"logprobs":{"content":[{"logprob":-1}]}}]}`}
	})
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	p.say(m, user("a"))
	p.finish(m, 1)
	if r := p.rollout(m); !r.Finished.TextOnly {
		t.Errorf("finished as %+v", r.Finished)
	}
	p.prove(0)
}

// TestSlowServer: neither the gateway nor the rollout waits for ever.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	b := newBackend(t, func(_ int, a ask) said { <-a.leave; return said{} })
	p := newPlane(t, b.url, func(c *runfile.RunConfig) {
		c.Limits.TurnTimeout.Whole = runfile.Duration(
			200 * time.Millisecond)
	})
	m := p.start(nil)
	p.post(m.chat(), map[string]any{"messages": []message{user("a")}}, http.StatusGatewayTimeout, nil)

	hasty := newPlane(t, b.url, func(c *runfile.RunConfig) { c.Limits.Timeout = runfile.Duration(8 * time.Second) })
	m = hasty.start(nil)
	hasty.post(m.chat(), map[string]any{"messages": []message{user("a")}}, http.StatusConflict, nil)
	servicetest.Wait(t, hasty.log, "r", events.RolloutFailedType, m.Rollout, 1)
	got := hasty.post(m.chat(), map[string]any{"messages": []message{user("a")}}, http.StatusConflict, nil)
	if !strings.Contains(string(got.body), "deadline") {
		t.Errorf("the answer is %s", got.body)
	}
	hasty.post("/rollouts/"+m.ID+"/finish", map[string]any{"reward": 1}, http.StatusConflict, nil)
	hasty.prove(0)
}

// TestBudgets: a rollout has the turns and the tokens that its run allows.
func TestBudgets(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, func(c *runfile.RunConfig) {
		c.Limits.Turns, c.Limits.Tokens,
			c.Sampling.MaxTokens = 3, 100, 50
	})
	m := p.start(nil)
	talk := p.say(m, user(strings.Repeat("x", 100)))
	got := p.post(m.chat(), map[string]any{"messages": append(talk, user("b"))}, http.StatusBadRequest, nil)
	if !strings.Contains(string(got.body), "context_length_exceeded") {
		t.Errorf("the answer is %s", got.body)
	}
	p.post(m.chat(), map[string]any{"messages": []message{user("a summary")}, "max_tokens": 7, "top_p": 0.1,
		"temperature": 0, "stop": []string{"end"}}, http.StatusOK, nil)
	p.post(m.chat(), map[string]any{"messages": []message{user("b")}, "max_completion_tokens": 70}, http.StatusOK, nil)
	got = p.post(m.chat(), map[string]any{"messages": []message{user("c")}}, http.StatusBadRequest, nil)
	if !strings.Contains(string(got.body), "max_turns") {
		t.Errorf("the answer is %s", got.body)
	}
	seen := b.seen()
	if a := seen[1]; a.MaxTokens != 7 || a.Temperature != 1 || a.TopP == nil || *a.TopP != 1 || a.Stop == nil {
		t.Errorf("the run samples as it says, but asked %+v", a)
	}
	if a := seen[2]; a.MaxTokens != 50 {
		t.Errorf("asked for %d tokens", a.MaxTokens)
	}
	p.finish(m, 1)
	if r := p.rollout(m); r.Finished.StopReason != events.StopMaxTurns {
		t.Errorf("finished as %+v", r.Finished)
	}
	p.prove(0)
}

// TestFailure: what a harness could not do is a failure of its rollout, and its
// group goes on without it.
func TestFailure(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	one := p.start(map[string]any{"group": "g", "size": 2})
	two := p.start(map[string]any{"group": "g"})
	p.post("/rollouts/"+one.ID+"/finish", map[string]any{"reward": 1}, http.StatusConflict, nil) // it has no turns
	for range 2 {
		p.post("/rollouts/"+one.ID+"/finish", map[string]any{"failure": "out of disk"}, http.StatusOK, nil)
	}
	p.post(one.chat(), map[string]any{"messages": []message{user("a")}}, http.StatusConflict, nil)
	p.post("/rollouts", map[string]any{"run": "r", "task": "theirs", "group": "g", "member": 0},
		http.StatusConflict, nil)
	p.say(two, user("a"))
	p.finish(two, 1)
	p.post("/rollouts/"+two.ID+"/finish", map[string]any{"reward": 0}, http.StatusConflict, nil)
	p.post(two.chat(), map[string]any{"messages": []message{user("a")}}, http.StatusConflict, nil)
	completed := servicetest.WaitData[events.GroupCompleted](t, p.log, "r", events.GroupCompletedType, "xg")
	if !completed.Members[0].Failed || completed.Members[1].Failed {
		t.Errorf("the group is %+v", completed)
	}
	p.prove(0)
}

// TestFeedbackIsTheReward of a rollout that is finished without one.
func TestFeedbackIsTheReward(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	p.say(m, user("a"))
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{}, http.StatusOK, nil)
	servicetest.Append(t, p.log, servicetest.Event(t, "r", events.FeedbackRecordedType, m.Rollout,
		"1", events.FeedbackRecorded{Signal: events.SignalAccept}))
	if scored := servicetest.WaitData[events.RolloutScored](t, p.log, "r", events.RolloutScoredType,
		m.Rollout); scored.Reward != 1 {
		t.Errorf("scored %+v", scored)
	}
}

// TestFinishedTwiceAtOnce in two gateways that know nothing of each other: whose facts come second
// finds those of the first.
func TestFinishedTwiceAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newBackend(t, counts).url, nil)
	urls := []string{p.url, p.serve(nil)}
	for i := range 10 {
		m := p.start(map[string]any{"group": fmt.Sprintf("g%d", i), "size": 1})
		p.say(m, user("work"))
		answers := make([]reply, len(urls))
		var wg sync.WaitGroup
		for j, url := range urls {
			wg.Go(func() {
				one := *p
				one.url = url
				var err error
				if answers[j], err = one.do(t.Context(), http.MethodPost,
					"/rollouts/"+m.ID+"/finish", map[string]any{"reward": 1}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, a := range answers {
			if a.status != http.StatusOK {
				t.Errorf("rollout %d: finish answered %d: %s", i, a.status, a.body)
			}
		}
	}
	p.prove(len(servicetest.All(t, p.log, events.Catalogue, events.DeadLetteredType)))
}
