package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// rollout is a rollout as it stands on the log.
type rollout struct {
	events.Rollout
	cfg events.RunConfig
}

// name is how a rollout is called in paths: its run and its id, which alone says nothing.
func name(run, id string) string { return run + "." + id }

// find reads a rollout of a path, when the tenant may use it.
func (g *Gateway) find(r *http.Request, t *tenant) (*rollout, error) {
	path := r.PathValue("id")
	run, id, ok := strings.Cut(path, ".")
	if !ok || !events.ValidRun(run) || !events.ValidToken(id) {
		return nil, problem(http.StatusNotFound, "not_found", "rollout %.80q: use the id that POST /rollouts has answered, RUN.ROLLOUT", path)
	}
	if !t.may(run) {
		return nil, noRun(run)
	}
	return g.load(r.Context(), run, id, t)
}

func (g *Gateway) load(ctx context.Context, run, id string, t *tenant) (*rollout, error) {
	cfg, err := g.log.Config(ctx, run)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, noRun(run)
	}
	if err != nil {
		return nil, err
	}
	last, err := g.log.Last(ctx, run, events.RolloutStartedType.Kind(), id)
	if errors.Is(err, eventlog.ErrNotFound) || !events.External(id) {
		return nil, problem(http.StatusNotFound, "not_found", "run %s has no rollout %s of a harness: POST /rollouts starts one", run, id)
	}
	if err != nil {
		return nil, err
	}
	links, err := g.log.History(ctx, run, last.Seq)
	if err != nil {
		return nil, err
	}
	folded, err := events.FoldRollout(links)
	if err != nil {
		return nil, err
	}
	if !t.owns(links[0].Source) {
		return nil, problem(http.StatusNotFound, "not_found", "rollout %s of run %s was started by somebody else", id, run)
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
		return problem(http.StatusConflict, "rollout_over", "rollout %s has failed: %s: %s", r.ID, r.Failed.Class, r.Failed.Message)
	}
	return problem(http.StatusConflict, "rollout_over", "rollout %s is %s already", r.ID, r.outcome())
}

// stateTime bounds the wait for the door's answer.
const stateTime = 30 * time.Second

// state states a fact at the door. It goes on when the client leaves: what was begun is stated or not, and never in doubt for long.
func (g *Gateway) state(ctx context.Context, t *tenant, run string, typ events.Type, entity, id string, data any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateTime)
	defer cancel()
	_, err := g.log.Submit(ctx, eventlog.Submission{Run: run, Type: typ, Entity: entity, Data: data, ID: id, Source: t.source()})
	return err
}

// refused turns the door's refusal into one of HTTP; other errors stay what they are.
func refused(err error) error {
	if errors.Is(err, eventlog.ErrRefused) {
		return problem(http.StatusConflict, "refused", "%v", err)
	}
	return err
}
