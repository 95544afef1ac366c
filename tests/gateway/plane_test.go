// Package gateway drives rollouts through the gateway as harnesses do, over HTTP, on a plane with
// all the services that they meet.
package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/services/gateway"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	planes "github.com/rondo-rl/rondo/tests/plane"
)

// plane is a log with its services, a run "r" whose rollouts are a harness's, and a gateway.
type plane struct {
	t   *testing.T
	log *eventlog.Log
	url string // of the gateway
	key string
}

// newPlane opens a run at an inference server.
func newPlane(t *testing.T, endpoint string, change func(*runfile.RunConfig)) *plane {
	t.Helper()
	p := &plane{t: t, log: natstest.Log(t)}
	cfg := servicetest.Config()
	cfg.External, cfg.Endpoint, cfg.Feeds = true, endpoint, []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}
	if change != nil {
		change(&cfg)
	}
	planes.Start(t, p.log, "r", cfg)
	p.url = p.serve(nil)
	return p
}

// serve starts a gateway.
func (p *plane) serve(change func(*gateway.Options)) string {
	p.t.Helper()
	return p.serveFleet(change, nil)
}

// serveFleet starts a gateway to a fleet of its own.
func (p *plane) serveFleet(change func(*gateway.Options), servers func(*fleet.Options)) string {
	p.t.Helper()
	server := httptest.NewServer(p.gateway(change, servers))
	p.t.Cleanup(server.Close)
	return server.URL
}

// gateway makes a gateway.
func (p *plane) gateway(change func(*gateway.Options), servers func(*fleet.Options)) http.Handler {
	p.t.Helper()
	opts := gateway.DefaultOptions()
	if change != nil {
		change(&opts)
	}
	env := servicetest.Env(p.t, p.log)
	g, err := gateway.New(env, servicetest.Fleet(p.t, env, servers), opts)
	if err != nil {
		p.t.Fatal(err)
	}
	return g
}

// reply is what the gateway answered.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request. A body that is no text is sent as JSON.
func (p *plane) do(ctx context.Context, method, path string, body any) (reply, error) {
	text, ok := body.(string)
	if !ok && body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			p.t.Fatal(err)
		}
		text = string(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader([]byte(text)))
	if err != nil {
		p.t.Fatal(err)
	}
	if p.key != "" {
		req.Header.Set("Authorization", "Bearer "+p.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, data}, err
}

// post sends a request that is to be answered with a status, and decodes the answer.
func (p *plane) post(path string, body any, want int, into any) reply {
	p.t.Helper()
	got, err := p.do(p.t.Context(), http.MethodPost, path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	if got.status != want {
		p.t.Fatalf("POST %s answered %d, want %d: %s", path, got.status, want, got.body)
	}
	if into != nil {
		if err := json.Unmarshal(got.body, into); err != nil {
			p.t.Fatalf("POST %s answered %s: %v", path, got.body, err)
		}
	}
	return got
}

// member is a rollout that was started.
type member struct {
	ID      string `json:"id"`
	BaseURL string `json:"base_url"`
	Rollout string `json:"rollout"`
	Group   string `json:"group"`
	Member  int    `json:"member"`
	Size    int    `json:"size"`
	Model   string `json:"model"`
}

func (p *plane) start(body map[string]any) member {
	p.t.Helper()
	var m member
	all := map[string]any{"run": "r", "task": "theirs"}
	maps.Copy(all, body)
	p.post("/rollouts", all, http.StatusCreated, &m)
	return m
}

// message is one of a conversation.
type message map[string]any

func system(text string) message { return message{"role": "system", "content": text} }
func user(text string) message   { return message{"role": "user", "content": text} }

// completion is what these tests read of an answer.
type completion struct {
	ID      string `json:"id"`
	Choices []struct {
		Message      message `json:"message"`
		FinishReason string  `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	} `json:"usage"`
}

func (m member) chat() string { return "/rollouts/" + m.ID + "/v1/chat/completions" }

// say asks for a turn, and returns the conversation with the answer behind it.
func (p *plane) say(m member, conversation ...message) []message {
	p.t.Helper()
	var c completion
	p.post(m.chat(), map[string]any{"model": "any", "messages": conversation}, http.StatusOK, &c)
	if len(c.Choices) != 1 {
		p.t.Fatalf("the answer is %+v", c)
	}
	return append(slices.Clip(conversation), c.Choices[0].Message)
}

func (p *plane) finish(m member, reward float64) {
	p.t.Helper()
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{"reward": reward}, http.StatusOK, nil)
}

// rollout folds a rollout of the log.
func (p *plane) rollout(m member) events.Rollout {
	p.t.Helper()
	r, err := p.log.Rollout(p.t.Context(), "r", m.Rollout)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// trajectory reads the file of a finished rollout.
func (p *plane) trajectory(m member) *storage.Trajectory {
	p.t.Helper()
	r := p.rollout(m)
	if r.Finished == nil {
		p.t.Fatalf("rollout %s is not finished: %+v", m.Rollout, r)
	}
	data, err := storage.GetBlob(p.t.Context(), p.log.Store(), r.Finished.Trajectory)
	if err != nil {
		p.t.Fatal(err)
	}
	tr, err := storage.DecodeTrajectory(data)
	if err != nil {
		p.t.Fatal(err)
	}
	return tr
}

// prove holds the run to all that Rondo promises, and counts the submissions
// that the intake has refused.
func (p *plane) prove(refusals int) {
	p.t.Helper()
	planes.Prove(p.t, p.log, "r")
	letters := servicetest.All(p.t, p.log, events.Catalogue, events.DeadLetteredType)
	if len(letters) != refusals {
		for _, e := range letters {
			p.t.Logf("%s", e.Data)
		}
		p.t.Errorf("the intake has refused %d messages, want %d", len(letters), refusals)
	}
}

func text(i int) string { return fmt.Sprintf("answer %d", i) }
