// Package outsiders submits rollouts, queries and feedback to a plane with all its services, and
// looks at what becomes of them.
package outsiders

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/teacher"
	"github.com/rondo-rl/rondo/storage"
	planes "github.com/rondo-rl/rondo/tests/plane"
)

// plane is a log with the services that outsiders meet, and one run, "r".
type plane struct {
	t   *testing.T
	log *eventlog.Log
}

func newPlane(t *testing.T, cfg runfile.RunConfig) *plane {
	t.Helper()
	p := &plane{t: t, log: natstest.Log(t)}
	for i := range cfg.Tasks {
		cfg.Tasks[i].Snapshot = servicetest.Blob(t, p.log.Store(), []byte("snapshot"))
		cfg.Tasks[i].Tests = servicetest.Blob(t, p.log.Store(), []byte("tests"))
	}
	planes.Start(t, p.log, "r", cfg, func(ctx context.Context, env pipeline.Env) error {
		return generator.Run(ctx, env, servicetest.Fleet(t, env, nil), generator.DefaultOptions())
	}, func(ctx context.Context, env pipeline.Env) error { return teacher.Run(ctx, env, fleet.Keys{}) })
	return p
}

// submit sends an event to the intake.
func (p *plane) submit(t events.Type, entity string, data any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	_, err := p.log.Submitter.Submit(ctx, eventlog.Submission{Run: "r", Type: t, Entity: entity, Data: data,
		ID: fmt.Sprintf("%s-%s-%d", t, entity, time.Now().UnixNano())})
	return err
}

func (p *plane) must(t events.Type, entity string, data any) {
	p.t.Helper()
	if err := p.submit(t, entity, data); err != nil {
		p.t.Fatal(err)
	}
}

// open opens an outsider's group and starts its members, each with the time that it has.
func (p *plane) open(group, task string, times ...time.Duration) {
	p.t.Helper()
	p.must(events.GroupOpenedType, group, events.GroupOpened{Task: task, Size: len(times)})
	for i, d := range times {
		p.must(events.RolloutStartedType, events.RolloutID(group, i), events.RolloutStarted{
			Group: group, Member: i, Task: task, Deadline: time.Now().Add(d).UTC(),
		})
	}
}

// finish hands a rollout's trajectory in.
func (p *plane) finish(id, task string) storage.Ref {
	p.t.Helper()
	f := servicetest.Finished(p.t, p.log.Store(), "r", id, servicetest.Trajectory("r", id, task))
	p.must(events.RolloutFinishedType, id, f)
	return f.Trajectory
}

func (p *plane) score(id, task string, reward float64) {
	p.t.Helper()
	p.must(events.RolloutScoredType, id, events.RolloutScored{Reward: reward, Trajectory: p.finish(id, task)})
}

// trained says that the trainer has taken a step and published weights for it.
func (p *plane) trained(step int64) {
	p.t.Helper()
	p.must(events.BatchConsumedType, "trainer", events.BatchConsumed{Step: step})
	w := events.WeightsPublished{Policy: "small", Version: step, Run: "r", ThroughStep: step,
		Manifest: servicetest.Blob(p.t, p.log.Store(), []byte("manifest"))}
	servicetest.Append(p.t, p.log, servicetest.Event(p.t, events.Catalogue, events.WeightsPublishedType,
		"small", events.Ordinal(step), w))
	servicetest.Append(p.t, p.log, servicetest.Event(p.t, "r", events.WeightsPublishedType,
		"small", events.Ordinal(step), w))
}

func (p *plane) batch(step int) events.BatchReady {
	p.t.Helper()
	return servicetest.Data[events.BatchReady](p.t, servicetest.Wait(p.t, p.log, "r", events.BatchReadyType,
		"trainer", step)[step-1])
}

// prove holds the run to all that Rondo promises, and makes its decisions again.
func (p *plane) prove() audit.Report {
	p.t.Helper()
	return planes.Prove(p.t, p.log, "r")
}

// endpoint is an inference server whose model says one thing; it returns the
// instructions that it was given.
func endpoint(t *testing.T) (url string, asked chan string) {
	t.Helper()
	asked = make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // it does not say how much it takes at once
			http.NotFound(w, r)
			return
		}
		var request struct {
			Messages []struct{ Role, Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		for _, m := range request.Messages {
			if m.Role == "user" {
				asked <- m.Content
			}
		}
		fmt.Fprint(w, strings.ReplaceAll(`{"prompt_token_ids":[1,2,3],"choices":[{"finish_reason":"stop","message":{"content":"Because."},
			"token_ids":[4,5],"logprobs":{"content":[{"logprob":-0.5},{"logprob":-0.25}]}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`, "\n", ""))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1", asked
}
