package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// rollout is a rollout as it is on the log.
type rollout struct {
	events.Rollout
	cfg runfile.RunConfig
	// left are the turns to which its agent, which was started anew, has not come.
	left int
}

// name is how a rollout is called in paths: its run and its id, which alone says nothing.
func name(run, id string) string { return run + "." + id }

// named reads a path's rollout, when the tenant may use its run.
func named(r *http.Request, t *tenant) (run, id string, err error) {
	path := r.PathValue("id")
	run, id, ok := strings.Cut(path, ".")
	if !ok || !events.ValidRun(run) || !runfile.ValidToken(id) {
		return "", "", problem(http.StatusNotFound, "not_found",
			"rollout %.80q: use the id that POST /rollouts has answered, RUN.ROLLOUT", path)
	}
	if !t.mayUse(run) {
		return "", "", noRun(run)
	}
	return run, id, nil
}

// find reads a rollout of a path, when the tenant may use it.
func (g *Gateway) find(r *http.Request, t *tenant) (*rollout, error) {
	run, id, err := named(r, t)
	if err != nil {
		return nil, err
	}
	return g.load(r.Context(), run, id, t)
}

// exists refuses a rollout that is not there, without reading it.
func (g *Gateway) exists(r *http.Request, t *tenant) error {
	run, id, err := named(r, t)
	if err != nil {
		return err
	}
	return g.has(r.Context(), run, id, t)
}

// has refuses what is no rollout of a harness, nor that of the agent who asks.
func (g *Gateway) has(ctx context.Context, run, id string, t *tenant) error {
	_, err := g.log.Last(ctx, run, events.RolloutStartedType.Kind(), id)
	if errors.Is(err, eventlog.ErrNotFound) || !events.External(id) && t.agent == nil {
		return problem(http.StatusNotFound, "not_found",
			"run %s has no rollout %s of a harness: POST /rollouts starts one", run, id)
	}
	return err
}

// load reads a rollout. What was read before is not read again.
func (g *Gateway) load(ctx context.Context, run, id string, t *tenant) (*rollout, error) {
	cfg, err := g.log.Config(ctx, run)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, noRun(run)
	}
	if err != nil {
		return nil, err
	}
	folded, err := g.log.Rollout(ctx, run, id)
	if errors.Is(err, eventlog.ErrNotFound) || !events.External(id) && t.agent == nil {
		if refused := g.has(ctx, run, id, t); refused != nil {
			return nil, refused
		}
	}
	if err != nil {
		return nil, err
	}
	if !t.owns(folded.Source) {
		return nil, problem(http.StatusNotFound, "not_found",
			"rollout %s of run %s was started by somebody else", id, run)
	}
	return &rollout{Rollout: folded, cfg: cfg}, nil
}

func noRun(run string) error {
	return problem(http.StatusNotFound, "not_found", "there is no run %q", run)
}

// outcome says how a rollout ended, "" while it has not.
func (r *rollout) outcome() string {
	switch {
	case r.Failed != nil:
		return "failed"
	case r.Scored != nil:
		return "scored"
	case r.Finished != nil:
		return "finished"
	}
	return ""
}

// open refuses what is over.
func (r *rollout) open() error {
	switch r.outcome() {
	case "":
		return nil
	case "failed":
		return problem(http.StatusConflict, "rollout_over", "rollout %s has failed: %s: %s", r.ID,
			r.Failed.Class, r.Failed.Message)
	}
	return problem(http.StatusConflict, "rollout_over", "rollout %s is %s already", r.ID, r.outcome())
}

// stateTime bounds the wait for the intake's answer.
const stateTime = 30 * time.Second

// state submits a fact to the intake. It goes on when the client leaves: what was begun is stated
// or not, and never in doubt for long.
func (g *Gateway) state(ctx context.Context, t *tenant, run string, typ events.Type, entity,
	id string, data any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateTime)
	defer cancel()
	_, err := g.intake.Submit(ctx, eventlog.Submission{Run: run, Type: typ, Entity: entity, Data: data,
		ID: id, Source: t.source()})
	return err
}

// refused turns the intake's refusal into an HTTP error; other errors stay unchanged.
func refused(err error) error {
	if errors.Is(err, eventlog.ErrRefused) {
		return problem(http.StatusConflict, "refused", "%v", err)
	}
	return err
}
