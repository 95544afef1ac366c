package generator

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
)

// recording puts pieces of the answer under way on the log, and into the rollout; nil where the
// answer cannot be gone on with. A piece that the log does not take stops the request: somebody
// else has the rollout, or it is over.
func recording(cfg runfile.RunConfig, r *events.Rollout, m pipeline.Message,
	stop context.CancelCauseFunc) func(context.Context, events.PieceSampled) error {
	if m.State == nil || !cfg.Sampling.Resumes() || cfg.TokenColumns != nil {
		return nil
	}
	return func(ctx context.Context, p events.PieceSampled) error {
		fact, err := r.Piece(p)
		if err == nil {
			fact, err = m.State(ctx, fact)
		}
		if err == nil {
			err = r.Extend([]events.Event{fact})
		}
		if err != nil {
			stop(err)
		}
		return err
	}
}
