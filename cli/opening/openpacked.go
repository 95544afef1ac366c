package opening

import (
	"context"
	"fmt"

	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// OpenPacked states the opening of a run whose tasks are in the store, and its agent.
func OpenPacked(ctx context.Context, p *plane.Plane, run string, f *RunFile) (events.IntakeAnswer, error) {
	if err := f.TakeAgent(ctx, p.Store); err != nil {
		return events.IntakeAnswer{}, fmt.Errorf("run %s: %w", run, err)
	}
	if err := f.Check(); err != nil {
		return events.IntakeAnswer{}, fmt.Errorf("run %s: %w", run, err)
	}
	return plane.Submit(ctx, p, eventlog.Submission{
		Run: run, Type: events.RunOpenedType, Entity: run,
		Data: events.RunOpened{Config: f.RunConfig}, ID: "opened-" + run,
	})
}
