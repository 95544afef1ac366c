package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/policy"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/archiver"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/services/indexupdater"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/toolrunner"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/services/undertaker"
	"github.com/rondo-rl/rondo/services/weightpublisher"
)

// settings are what services can be told, by flags of the same names.
type settings struct {
	generatorSlots int
	toolSlots      int
	scorerSlots    int
	pool           string
	labels         []string
	capacity       int
	builtin        string // base URL of the built-in policy
	policyListen   string
	allowInsecure  bool
	toolchainCache string
	trainer        policy.Options
	gateway        gatewaySettings
	endpointKeys   string       // a file
	servers        *fleet.Fleet // which generator and gateway share
	keys           fleet.Keys   // of inference servers, of judges, and of servers of tools
	index          indexerSettings
}

func defaultSettings() settings {
	cores := goruntime.NumCPU()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return settings{
		generatorSlots: generator.DefaultOptions().Slots, toolSlots: 4 * cores, scorerSlots: 2 * cores, capacity: toolrunner.DefaultCapacity,
		pool: events.DefaultRunConfig().Pool, builtin: "http://127.0.0.1:8700/v1", policyListen: "127.0.0.1:8700",
		toolchainCache: filepath.Join(cache, "rondo", "toolchains"), trainer: policy.DefaultOptions(),
		index: indexerSettings{keys: configFolder(), embedder: builtinEmbedder, every: indexupdater.DefaultEvery},
	}
}

func (s *settings) addFlags(cmd *cobra.Command) {
	s.addSlotFlags(cmd)
	s.addSandboxFlags(cmd)
	s.index.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.pool, "pool", s.pool, "pool of the tool runner")
	f.StringSliceVar(&s.labels, "label", nil, "label of the tool runner, for tasks that ask for it; may be repeated")
	f.IntVar(&s.capacity, "capacity", s.capacity, "sandboxes that the tool runner holds between turns, some megabytes each")
	s.addKeysFlag(f)
	f.Float64Var(&s.trainer.LearningRate, "learning-rate", s.trainer.LearningRate, "of the reference trainer")
}

func (s *settings) addSlotFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&s.generatorSlots, "generator-slots", s.generatorSlots, "turns that are sampled at once")
	f.IntVar(&s.toolSlots, "tool-slots", s.toolSlots, "turns whose tools run at once")
	f.IntVar(&s.scorerSlots, "scorer-slots", s.scorerSlots, "verifiers that run at once")
}

// part is something that runs until its context ends.
type part func(ctx context.Context, env runtime.Env, s settings) error

// Names of participants that are no services of the topology: they are outsiders that come with Rondo.
const (
	policyPart  = "policy"
	trainerPart = "trainer"
)

var parts = map[string]part{
	events.Intake:              func(ctx context.Context, env runtime.Env, _ settings) error { return intake.Run(ctx, env) },
	events.QuerySampler:        func(ctx context.Context, env runtime.Env, _ settings) error { return querysampler.Run(ctx, env) },
	events.AdvantageCalculator: func(ctx context.Context, env runtime.Env, _ settings) error { return advantagecalculator.Run(ctx, env) },
	events.TrainerFeeder:       func(ctx context.Context, env runtime.Env, _ settings) error { return trainerfeeder.Run(ctx, env) },
	events.WeightPublisher:     func(ctx context.Context, env runtime.Env, _ settings) error { return weightpublisher.Run(ctx, env) },
	events.Archiver:            func(ctx context.Context, env runtime.Env, _ settings) error { return archiver.Run(ctx, env) },
	events.Undertaker:          func(ctx context.Context, env runtime.Env, _ settings) error { return undertaker.Run(ctx, env) },
	events.IndexUpdater: func(ctx context.Context, env runtime.Env, s settings) error {
		opts, err := s.index.options(env.Log.Store())
		if err != nil {
			return err
		}
		return indexupdater.Run(ctx, env, opts)
	},
	events.Generator: func(ctx context.Context, env runtime.Env, s settings) error {
		opts := generator.DefaultOptions()
		opts.Slots = s.generatorSlots
		return generator.Run(ctx, env, s.servers, opts)
	},
	events.ToolRunner: func(ctx context.Context, env runtime.Env, s settings) error {
		if err := s.checkRunner(); err != nil {
			return err
		}
		return toolrunner.Run(ctx, env, toolrunner.Options{
			Slots: s.toolSlots, Pool: s.pool, Labels: s.labels, Capacity: s.capacity, AllowInsecure: s.allowInsecure, ToolchainCache: s.toolchainCache, Keys: s.keys,
		})
	},
	events.Scorer: func(ctx context.Context, env runtime.Env, s settings) error {
		return scorer.Run(ctx, env, scorer.Options{Slots: s.scorerSlots, AllowInsecure: s.allowInsecure, ToolchainCache: s.toolchainCache, Keys: s.keys})
	},
	policyPart:  servePolicy,
	trainerPart: train,
	gatewayPart: serveGateway,
}

// checkRunner checks what a tool runner can be told.
func (s *settings) checkRunner() error {
	if s.capacity < 1 {
		return fmt.Errorf("--capacity %d: at least 1 sandbox is needed", s.capacity)
	}
	for _, label := range s.labels {
		if !events.ValidLabel(label) {
			return fmt.Errorf("--label %q: %s", label, events.LabelRule)
		}
	}
	return nil
}

func partNames() []string { return slices.Sorted(maps.Keys(parts)) }

// needSandbox are the parts that run what models and tasks say.
var needSandbox = []string{events.ToolRunner, events.Scorer}

// checkSandbox really runs a command in a sandbox, so that a refusal is seen before any work is lost.
func checkSandbox(ctx context.Context, names []string, s settings) error {
	if !slices.ContainsFunc(names, func(n string) bool { return slices.Contains(needSandbox, n) }) || s.allowInsecure {
		return nil
	}
	if _, err := sandbox.Probe(ctx); err != nil {
		return fmt.Errorf("this machine gives no sandbox: %w (--allow-insecure runs tools without isolation; only for tasks and models that you trust)", err)
	}
	return nil
}

// runParts runs the named parts until the context ends or one of them fails.
func runParts(ctx context.Context, names []string, log *eventlog.Log, dir string, l *slog.Logger, metrics prometheus.Registerer, s settings) error {
	if err := checkSandbox(ctx, names, s); err != nil {
		return err
	}
	var err error
	if s.keys, err = readKeys(s.endpointKeys); err != nil {
		return err
	}
	if s.servers, err = s.newFleet(l, metrics); err != nil {
		return err
	}
	host, _ := os.Hostname()
	env := runtime.Env{Log: log, Dir: dir, Logger: l, Metrics: metrics, Instance: fmt.Sprintf("%s-%d", host, os.Getpid())}
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		g.Go(func() error {
			if err := parts[name](ctx, env, s); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// serveHTTP serves a handler until the context ends.
func serveHTTP(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			server.Close()
		}
	})
	defer stop()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func newService(g *global) *cobra.Command {
	s := defaultSettings()
	var metricsListen string
	cmd := &cobra.Command{
		Use:   "service NAME...",
		Short: "Run chosen services against an external NATS server and store",
		Long:  "Run chosen services, or the built-in policy, the reference trainer and the gateway for harnesses: " + fmt.Sprint(partNames()),
		Example: `  rondo service intake querysampler --nats nats://127.0.0.1:4222 --store /srv/rondo
  rondo service toolrunner scorer --nats nats://nats:4222 --store 's3://rondo?endpoint=http://s3:7070'
  rondo service gateway --gateway-listen :8790 --gateway-tenants tenants.yaml --nats nats://nats:4222 --store /srv/rondo`,
		Args:      cobra.MatchAll(cobra.MinimumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: partNames(),
		RunE: func(cmd *cobra.Command, names []string) error {
			if g.nats == "" || g.store == "" {
				return fmt.Errorf("services of their own need --nats and --store; `rondo up` runs everything embedded")
			}
			// Who has the intake's rights makes the streams; the others have no right to.
			g.awaitStreams = !slices.Contains(names, events.Intake)
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			registry := prometheus.NewRegistry()
			if metricsListen != "" {
				listener, err := net.Listen("tcp", metricsListen)
				if err != nil {
					return fmt.Errorf("serve metrics: %w", err)
				}
				mux := http.NewServeMux()
				mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
				mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { health(w, p) })
				go serveHTTP(cmd.Context(), listener, mux)
			}
			logger(slog.LevelInfo).Info("services run", "names", names, "nats", p.conn.ConnectedUrlRedacted())
			return runParts(cmd.Context(), names, p.log, g.dir, logger(slog.LevelInfo), registry, s)
		},
	}
	s.addFlags(cmd)
	s.gateway.addFlags(cmd, "127.0.0.1:8790")
	cmd.Flags().StringVar(&s.builtin, "builtin-endpoint", s.builtin, "where the generator finds the built-in policy")
	cmd.Flags().StringVar(&s.policyListen, "policy-listen", s.policyListen, "where the built-in policy listens")
	cmd.Flags().StringVar(&metricsListen, "metrics-listen", "", "address for /metrics and /healthz, for example :9100")
	return cmd
}

// health says whether the connection to the log stands.
func health(w http.ResponseWriter, p *plane) {
	if !p.conn.IsConnected() {
		http.Error(w, "not connected to NATS", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
