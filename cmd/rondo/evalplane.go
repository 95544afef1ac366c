package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/tasks"
)

// withServices calls work with the plane that the flags name. Where no process serves the one in --dir, this one does
// meanwhile, with all services and the built-in policy, and without a trainer. The context of work ends when a service fails.
func withServices(ctx context.Context, g *global, s settings, list []*tasks.Task, show *progress, work func(context.Context, *plane) error) error {
	if g.nats != "" {
		return withPlane(ctx, g, work)
	}
	p, err := hold(ctx, g.dir, holdOptions{storeURL: g.store, listen: true})
	if errors.Is(err, errHeld) {
		return withPlane(ctx, g, work)
	}
	if err != nil {
		return err
	}
	defer p.close()
	names := slices.DeleteFunc(everyPart(s), func(name string) bool { return name == trainerPart })
	if err := checkSandbox(ctx, names, s); err != nil {
		return err
	}
	if err := warmToolchains(ctx, show, list, s); err != nil {
		return err
	}
	if s.policyListen, s.builtin, err = freePolicyAddress(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := runParts(ctx, names, p.log, p.dir, logger(slog.LevelWarn), prometheus.NewRegistry(), s)
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
func withPlane(ctx context.Context, g *global, work func(context.Context, *plane) error) error {
	p, err := connect(ctx, g)
	if err != nil {
		return err
	}
	defer p.close()
	return work(ctx, p)
}

// ignoreEnd leaves out that services ended because they were told to.
func ignoreEnd(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
