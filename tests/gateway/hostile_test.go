package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/gateway"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestRequestsThatAreWrong are refused with what is wrong, before anybody is asked or told.
func TestRequestsThatAreWrong(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	m := p.start(map[string]any{"group": "g"})
	silent := servicetest.Config()
	silent.External, silent.Endpoint = true, ""
	servicetest.OpenRun(t, p.log, "silent", silent)
	servicetest.OpenRun(t, p.log, "closed", silent)
	servicetest.CloseRun(t, p.log, "closed")
	mute := p.start(map[string]any{"run": "silent"})
	deep := strings.Repeat(`[`, 20000)
	for name, c := range map[string]struct {
		path   string
		body   any
		status int
		want   string
	}{
		"no JSON":             {m.chat(), "{", 400, "JSON"},
		"deeply nested":       {m.chat(), `{"messages":` + deep, 400, "depth"},
		"no messages":         {m.chat(), `{}`, 400, "messages"},
		"messages of no kind": {m.chat(), `{"messages":[7]}`, 400, "messages[0]"},
		"an unknown role":     {m.chat(), `{"messages":[{"role":"root"}]}`, 400, "role"},
		"content of no kind":  {m.chat(), `{"messages":[{"role":"user","content":7}]}`, 400, "content"},
		"a long name": {m.chat(), map[string]any{"messages": []message{{"role": "user",
			"name": strings.Repeat("n", 1000)}}}, 400, "128"},
		"many messages": {m.chat(), `{"messages":[` + strings.Repeat(`{},`, 10000) + `{}]}`, 400, "10001"},
		"many tools": {m.chat(), `{"messages":[{"role":"user"}],"tools":[` +
			strings.Repeat(`{},`, 1024) + `{}]}`, 400, "1025"},
		"several answers":      {m.chat(), `{"messages":[{"role":"user"}],"n":2}`, 400, "n: 2"},
		"functions":            {m.chat(), `{"messages":[{"role":"user"}],"functions":[]}`, 400, "tools"},
		"top_logprobs":         {m.chat(), `{"messages":[{"role":"user"}],"top_logprobs":3}`, 400, "top_logprobs"},
		"no tokens":            {m.chat(), `{"messages":[{"role":"user"}],"max_tokens":0}`, 400, "max_tokens"},
		"too large":            {m.chat(), `{"messages":"` + strings.Repeat("x", 33<<20), 413, "33554432"},
		"no such rollout":      {"/rollouts/r.xnone-0/v1/chat/completions", `{}`, 404, "xnone-0"},
		"a rollout of our own": {"/rollouts/r.g000001-0/v1/chat/completions", `{}`, 404, "g000001-0"},
		"no run":               {"/rollouts/xg-0/v1/chat/completions", `{}`, 404, "RUN.ROLLOUT"},
		"a stream's name":      {"/rollouts/IN.xg-0/v1/chat/completions", `{}`, 404, "RUN.ROLLOUT"},
		"wildcards":            {"/rollouts/r.%3E/v1/chat/completions", `{}`, 404, "RUN.ROLLOUT"},
		"a run without server": {mute.chat(), `{"messages":[{"role":"user"}]}`, 409, "endpoint"},
		"no such path":         {"/v1/chat/completions", `{}`, 404, "POST /rollouts"},
		"start: no run":        {"/rollouts", `{"task":"a"}`, 404, "run"},
		"start: unknown run":   {"/rollouts", `{"run":"nobody","task":"a"}`, 404, "nobody"},
		"start: wildcard":      {"/rollouts", `{"run":"*","task":"a"}`, 404, "run"},
		"start: closed run":    {"/rollouts", `{"run":"closed","task":"a","group":"h"}`, 409, "closed"},
		"start: no task":       {"/rollouts", `{"run":"r"}`, 409, "task"},
		"start: unknown field": {"/rollouts", `{"run":"r","task":"a","sise":2}`, 400, "sise"},
		"start: two values":    {"/rollouts", `{"run":"r","task":"a"}{}`, 400, "more than one"},
		"start: group's name":  {"/rollouts", `{"run":"r","task":"a","group":"a-b"}`, 400, "group"},
		"start: large group":   {"/rollouts", `{"run":"r","task":"a","group":"i","size":5000}`, 409, "1024"},
		"start: another task":  {"/rollouts", `{"run":"r","task":"other","group":"g"}`, 409, "theirs"},
		"start: another size":  {"/rollouts", `{"run":"r","group":"g","size":7}`, 409, "2 members"},
		"start: no such one":   {"/rollouts", `{"run":"r","group":"g","member":2}`, 400, "member 2"},
		"start: below 0":       {"/rollouts", `{"run":"r","group":"g","member":-1}`, 400, "member -1"},
		"start: large":         {"/rollouts", `{"run":"` + strings.Repeat("r", 1<<20), 413, "65536"},
		"finish: both":         {"/rollouts/" + m.ID + "/finish", `{"reward":1,"failure":"x"}`, 400, "failure"},
		"finish: huge":         {"/rollouts/" + m.ID + "/finish", `{"reward":1e300}`, 400, "1e9"},
		"finish: parts alone":  {"/rollouts/" + m.ID + "/finish", `{"components":{"a":1}}`, 400, "reward"},
		"finish: stop reason": {"/rollouts/" + m.ID + "/finish",
			`{"reward":1,"stop_reason":"a b"}`, 400, "stop_reason"},
		"finish: long failure": {"/rollouts/" + m.ID + "/finish",
			map[string]any{"failure": strings.Repeat("x", 5000)}, 400, "4000"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := p.do(t.Context(), http.MethodPost, c.path, c.body)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			var told struct {
				Error struct {
					Message, Type, Code string
				}
			}
			if err := json.Unmarshal(got.body, &told); err != nil || got.status != c.status ||
				!strings.Contains(told.Error.Message, c.want) || told.Error.Type == "" {
				t.Errorf("%s: %d %s (want %d, %q)", name, got.status, got.body, c.status, c.want)
			}
		})
	}
	if n := len(b.seen()); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
	if n := len(p.rollout(m).Turns); n != 0 {
		t.Errorf("%d turns", n)
	}
}

// TestKeys: only who has a key gets in, sees his own runs, and goes on with his own rollouts.
func TestKeys(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	servicetest.OpenRun(t, p.log, "other", servicetest.Config("a"))
	anna, bert, guest := gateway.WithKey("anna", "a-key"), gateway.WithKey("bert", "b-key"),
		gateway.WithKey("guest", "g-key")
	guest.Runs = []string{"oth*"}
	p.url = p.serve(func(o *gateway.Options) { o.Tenants = []gateway.Tenant{anna, bert, guest} })
	start := map[string]any{"run": "r", "task": "theirs", "group": "g"}
	for _, key := range []string{"", "c-key", "a-key-", strings.ToUpper("a-key")} {
		p.key = key
		p.post("/rollouts", start, http.StatusUnauthorized, nil)
	}
	p.key = "a-key"
	m := p.start(map[string]any{"group": "g"})
	p.say(m, user("a"))
	p.key = "b-key"
	p.post(m.chat(), map[string]any{"messages": []message{user("a")}}, http.StatusNotFound, nil)
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{"reward": 0}, http.StatusNotFound, nil)
	p.post("/rollouts", start, http.StatusConflict, nil)
	p.start(map[string]any{"group": "h"})
	p.key = "g-key"
	p.post("/rollouts", start, http.StatusNotFound, nil)
	p.post(m.chat(), map[string]any{"messages": []message{user("a")}}, http.StatusNotFound, nil)
	p.post("/rollouts", map[string]any{"run": "other", "task": "a"}, http.StatusCreated, nil)
	p.key = "a-key"
	p.finish(m, 1)
	for _, e := range servicetest.All(t, p.log, "r") {
		if strings.Contains(string(e.Data)+e.Source, "-key") {
			t.Errorf("%s tells a key", e.ID)
		}
	}
	if e := servicetest.All(t, p.log, "r", events.RolloutStartedType)[0]; e.Source != "outside/gateway/anna" {
		t.Errorf("the rollout was started by %s", e.Source)
	}
	p.prove(0)
}

// TestLimits: a tenant who asks for more than his share is told when to come again.
func TestLimits(t *testing.T) {
	t.Parallel()
	wait := make(chan struct{})
	b := newBackend(t, func(n int, a ask) said {
		if a.Messages[0]["content"] == "slow" {
			select {
			case <-wait:
			case <-a.leave: // the test has failed
			}
		}
		return said{content: text(n)}
	})
	p := newPlane(t, b.url, nil)
	often, much, both := gateway.WithKey("often", "1"), gateway.WithKey("much", "2"), gateway.WithKey("both", "3")
	often.RequestsPerMinute, much.TokensPerMinute, both.Concurrent = 2, 30, 1
	p.url = p.serve(func(o *gateway.Options) { o.Tenants = []gateway.Tenant{often, much, both} })
	refused := func(m member) {
		t.Helper()
		if got := p.post(m.chat(), map[string]any{"messages": []message{user("a")}}, http.StatusTooManyRequests,
			nil); got.header.Get("Retry-After") == "" {
			t.Errorf("it does not say when to come again: %s", got.body)
		}
	}
	p.key = "1"
	m := p.start(nil)
	p.say(m, user("a"))
	p.say(m, user("b"))
	refused(m)
	p.key = "2"
	m = p.start(nil)
	p.say(m, user("a long question, which costs many tokens"))
	refused(m)
	p.key = "3"
	m = p.start(nil)
	done := make(chan error, 1)
	key := p.key
	go func() {
		q := &plane{t: t, url: p.url, key: key}
		_, err := q.do(t.Context(), http.MethodPost, m.chat(), map[string]any{"messages": []message{user("slow")}})
		done <- err
	}()
	natstest.Eventually(t, "the slow call is under way", func() bool { return len(b.seen()) == 4 })
	refused(m)
	close(wait)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p.say(m, user("a"))
}

// TestSlowRequestsHoldNoSlot: clients that begin a request and never end it keep nobody from the
// inference servers, nor from their own number of calls at once.
func TestSlowRequestsHoldNoSlot(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	anna := gateway.WithKey("anna", "a-key")
	anna.Concurrent = 1
	p.url, p.key = p.serve(func(o *gateway.Options) { o.Slots, o.Waiting, o.Tenants = 1, 0, []gateway.Tenant{anna} }),
		"a-key"
	m := p.start(nil)
	for range 20 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn,
			"POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-key\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", m.chat())
		line, err := bufio.NewReader(conn).ReadString('\n') // it is reading
		if err != nil || !strings.Contains(line, "100") {
			t.Fatalf("it says %q: %v", line, err)
		}
		fmt.Fprint(conn, `{"messages":`)
	}
	p.say(m, user("a"))
}
