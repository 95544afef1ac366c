package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// demoElsewhere follows the demo's run on a plane that runs elsewhere, and opens it where it is not
// yet there. So it may be started again at any moment, as a container is.
func demoElsewhere(ctx context.Context, g *app.Global, o demoOptions, _ service.Settings) (demoResult, error) {
	show := app.NewProgress(g)
	g.Follows = true
	p, err := plane.Connect(ctx, g)
	if err != nil {
		return demoResult{}, err
	}
	defer p.Close()
	name := fmt.Sprintf("demo-%d", o.seed)
	cfg, err := p.Log.RecordedConfig(ctx, name)
	if errors.Is(err, eventlog.ErrNotFound) {
		cfg, err = openDemo(ctx, p, name, o)
	}
	if err != nil {
		return demoResult{}, err
	}
	if len(cfg.Feeds) == 0 {
		return demoResult{},
			fmt.Errorf("run %s has no feed to follow: it is another run than the demo's; choose another --seed", name)
	}
	w := newWatcher(name, cfg, show)
	if err := w.follow(ctx, p.Log); err != nil {
		return demoResult{}, fmt.Errorf("run %s: %w", name, err)
	}
	return newDemoResult(w, ""), nil
}
