package eval

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/tasks"
)

// withServices calls work with the plane that the flags name. Where no process serves the one in
// --dir, this one does meanwhile, with all services and the built-in policy, and without a trainer.
// The context of work ends when a service fails.
func withServices(ctx context.Context, g *app.Global, s service.Settings, list []*tasks.Task, show *app.Progress,
	work func(context.Context, *plane.Plane) error) error {
	if g.NATS != "" {
		g.Follows = true // its runs, which may take hours
		return withPlane(ctx, g, work)
	}
	p, err := plane.Hold(ctx, g.Dir, plane.HoldOptions{StoreURL: g.Store, Listen: true})
	if errors.Is(err, plane.ErrInUse) {
		g.Follows = true
		return withPlane(ctx, g, work)
	}
	if err != nil {
		return err
	}
	defer p.Close()
	names := slices.DeleteFunc(service.EveryPart(s), func(name string) bool { return name == service.TrainerPart })
	if err := service.CheckSandbox(ctx, names, s); err != nil {
		return err
	}
	if err := service.WarmToolchains(ctx, show, list, s); err != nil {
		return err
	}
	if err := s.PlacePolicy(service.AnyPort); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if s.Health, err = p.Watch(ctx, app.Logger(slog.LevelWarn), nil); err != nil {
		cancel(nil)
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := service.RunParts(ctx, names, p.Log, p.Dir, app.Logger(slog.LevelWarn), prometheus.NewRegistry(), s)
		cancel(err)
		ended <- err
	}()
	err = work(ctx, p)
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	return errors.Join(err, ignoreEnd(<-ended)) // the services end before the log does
}

// withPlane calls work with a plane that others serve.
func withPlane(ctx context.Context, g *app.Global, work func(context.Context, *plane.Plane) error) error {
	p, err := plane.Connect(ctx, g)
	if err != nil {
		return err
	}
	defer p.Close()
	return work(ctx, p)
}

// ignoreEnd leaves out that services ended because they were told to.
func ignoreEnd(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
