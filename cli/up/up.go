// Package up is the command that runs the whole plane in one process.
package up

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/gc"
)

// New makes the command `rondo up`.
func New(g *app.Global) *cobra.Command {
	s := service.DefaultSettings()
	var durability, listen, retention string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run all services with an embedded log and store, until interrupted",
		Long: `Up runs all services in one process, with a log and a store of its own in --dir. With --nats and --store it uses an external NATS server or
cluster instead, as "rondo service" does; --replicas says how many servers of the cluster hold the log.`,
		Example: `  rondo up
  rondo up --dir /srv/rondo --durability 100ms --listen 127.0.0.1:8701
  rondo up --dashboard-listen 127.0.0.1:8780
  rondo up --gateway-listen 127.0.0.1:8790
  rondo up --otlp-endpoint http://127.0.0.1:4318 --log-format json
  rondo up --retention retention.yaml
  rondo up --nats nats://n1:4222,nats://n2:4222,nats://n3:4222 --store /srv/rondo --replicas 3`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			every, err := service.ParseDurability(durability)
			if err != nil {
				return err
			}
			keep, err := policyOf(retention)
			if err != nil {
				return err
			}
			if err := runfile.CheckReplicas(g.Replicas); err != nil {
				return fmt.Errorf("--replicas: %w", err)
			}
			var p *plane.Plane
			if g.NATS != "" {
				if cmd.Flags().Changed("durability") {
					return errors.New("--durability is that of the embedded log: of an external one it is sync_interval, in the servers' configuration")
				}
				g.Follows = true // it waits for a lost connection as long as it takes
				p, err = plane.Connect(cmd.Context(), g)
			} else {
				p, err = hold(cmd.Context(), g, every)
			}
			if err != nil {
				return err
			}
			defer p.Close()
			return serve(cmd.Context(), p, s, listen, keep, app.NewProgress(g))
		},
	}
	s.AddFlags(cmd)
	service.AddReplicasFlag(cmd, g)
	s.Gateway.AddFlags(cmd, "")
	s.Dashboard.AddFlags(cmd.Flags(), "127.0.0.1:0")
	s.AddPolicyFlag(cmd, service.AnyPort)
	cmd.Flags().StringVar(&durability, "durability", "always",
		"when appends are synced to disk: always, or an interval such as 100ms, which is what a power cut may "+
			"then take of the facts; no run that was answered as open is lost")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address for /metrics, /healthz and /readyz")
	cmd.Flags().StringVar(&retention, "retention", "",
		"a `FILE` that says how long closed runs, their archives and replaced weights are kept (rondo gc --retention FILE shows what would go), "+
			"or off: everything is kept. Without it the streams of runs that were closed 6 hours ago go when they are archived, but for the newest 20, and all else is kept")
	app.ShowFlags(cmd, "allow-insecure", "allow-network", "dashboard-listen", "dashboard-open", "durability",
		"endpoint-keys", "gateway-listen", "generator-slots",
		"listen", "otlp-endpoint", "replicas", "retention", "scorer-slots", "tool-slots")
	return cmd
}

// hold starts the embedded plane.
func hold(ctx context.Context, g *app.Global, every time.Duration) (*plane.Plane, error) {
	if g.Replicas > 1 {
		return nil, fmt.Errorf("--replicas %d: the embedded log is one server: name a NATS cluster by --nats",
			g.Replicas)
	}
	p, err := plane.Hold(ctx, g.Dir, plane.HoldOptions{StoreURL: g.Store, Listen: true, Durability: every})
	if errors.Is(err, plane.ErrInUse) {
		return nil, fmt.Errorf("%w: does another `rondo up` or `rondo demo` run there?", err)
	}
	return p, err
}

// serve runs everything until the context ends.
func serve(ctx context.Context, p *plane.Plane, s service.Settings, listen string, keep *gc.Policy,
	show *app.Progress) error {
	registry := plane.NewMetrics()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	l := app.Logger(slog.LevelInfo)
	if s.Health, err = p.Watch(ctx, l, registry); err != nil {
		listener.Close()
		return err
	}
	go s.ServeOpen(ctx, listener, plane.StatusHandler(registry, s.Health))
	if err := p.AnnounceStatus(listener.Addr().String()); err != nil {
		return err
	}
	if err := s.PlacePolicy(s.PolicyListen); err != nil {
		return err
	}
	pages, err := s.Dashboard.Listen(p.Dir)
	if err != nil {
		return err
	}
	defer s.Dashboard.Close()
	l.Info("plane started", "dir", p.Dir, "nats", app.Redacted(p.URL), "metrics",
		"http://"+listener.Addr().String()+"/metrics", "policy", s.Builtin, "dashboard", pages)
	l.Info("retention", terms(keep)...)
	if pages != "" && show.Terminal { // in a pipe the dashboard's own line says where the link is
		show.Line("dashboard: %s", s.Dashboard.Welcome(true))
	}
	if keep != nil {
		r, err := newRetainer(p.Log, *keep, l, registry)
		if err != nil {
			return err
		}
		retaining, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { defer close(done); r.run(retaining) }()
		defer func() { stop(); <-done }() // before the log is closed
	}
	return service.RunParts(ctx, service.EveryPart(s), p.Log, p.Dir, l, registry, s)
}
