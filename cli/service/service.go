// Package service runs services in this process, with the flags that they share, and is
// the command of that name.
package service

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
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/auth/browser"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/indexing"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/tracing"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/egress"
	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/archiver"
	"github.com/rondo-rl/rondo/services/deadletters"
	"github.com/rondo-rl/rondo/services/gateway"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/services/indexupdater"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/teacher"
	"github.com/rondo-rl/rondo/services/toolrunner"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/services/weightpublisher"
	"github.com/rondo-rl/rondo/tasks"
)

// Settings are what services can be told, by flags of the same names.
type Settings struct {
	generatorSlots int
	toolSlots      int
	ScorerSlots    int
	Pool           string
	labels         []string
	allowNetwork   []string
	registries     []string // NAME=URL[,FILES-URL...]
	capacity       int
	Builtin        string // base URL of the built-in policy
	PolicyListen   string
	tasks.Machine
	Trainer      policy.Options
	Gateway      gatewaySettings
	Dashboard    dashboardSettings
	EndpointKeys string          // a file
	servers      *fleet.Fleet    // which generator and gateway share
	Health       *health.Monitor // of log and store; nil: nobody watches
	keys         fleet.Keys      // of inference servers, of judges, and of servers of tools
	index        indexing.IndexerSettings
	quotas       intake.Quotas // of outsiders
	hosts        []string      // further names of this machine, for servers without keys
	otlpEndpoint string        // of the collector of traces
}

// DefaultSettings are the settings without any flag.
func DefaultSettings() Settings {
	cores := goruntime.NumCPU()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return Settings{
		generatorSlots: generator.DefaultOptions().Slots, toolSlots: 4 * cores, ScorerSlots: 2 * cores,
		capacity: toolrunner.DefaultCapacity,
		Pool:     runfile.DefaultRunConfig().Pool, Builtin: "http://127.0.0.1:8700/v1",
		Machine: tasks.Machine{ToolchainCache: filepath.Join(cache, "rondo", "toolchains")},
		Trainer: policy.DefaultOptions(),
		quotas:  intake.DefaultQuotas(),
		index:   indexing.IndexerSettings{Keys: indexing.ConfigFolder(), Embedder: indexing.BuiltinEmbedder},
	}
}

// AddFlags adds the flags of all services that run on one machine.
func (s *Settings) AddFlags(cmd *cobra.Command) {
	s.AddSlotFlags(cmd)
	s.AddSandboxFlags(cmd)
	s.index.AddFlags(cmd)
	s.addQuotaFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.Pool, "pool", s.Pool, "pool of the tool runner")
	f.StringSliceVar(&s.labels, "label", nil, "label of the tool runner, for tasks that ask for it; may be repeated")
	f.StringSliceVar(&s.allowNetwork, "allow-network", nil,
		"what runs may ask for in network.allow: pypi, npm, go, HOST, *.HOST or HOST:PORT; may be repeated. Without it sandboxes have no network")
	f.StringArrayVar(&s.registries, "registry", nil,
		"mirror in the place of a public package registry: NAME=URL[,FILES-URL...], for example pypi=https://mirror.example.org/simple/; may be repeated")
	f.IntVar(&s.capacity, "capacity", s.capacity,
		"sandboxes that the tool runner keeps leased between turns, some megabytes each")
	s.AddKeysFlag(f)
	f.StringSliceVar(&s.hosts, "allow-host", nil,
		"name with a dot under which clients reach the metrics or the built-in policy over the network; may be repeated. "+
			"Addresses, names without a dot and this machine's own name need none")
	f.StringVar(&s.otlpEndpoint, "otlp-endpoint", "",
		"base URL of an OpenTelemetry collector that gets traces, for example http://127.0.0.1:4318 "+
			"(or the variables OTEL_EXPORTER_OTLP_*). Without it there are none")
	f.Float64Var(&s.Trainer.LearningRate, "learning-rate", s.Trainer.LearningRate, "of the reference trainer")
}

// AddSlotFlags adds the flags of how much services do at once.
func (s *Settings) AddSlotFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&s.generatorSlots, "generator-slots", s.generatorSlots, "turns that are sampled at once")
	f.IntVar(&s.toolSlots, "tool-slots", s.toolSlots, "turns whose tools run at once")
	f.IntVar(&s.ScorerSlots, "scorer-slots", s.ScorerSlots, "verifiers that run at once")
}

func (s *Settings) addQuotaFlags(cmd *cobra.Command) {
	f, q := cmd.Flags(), &s.quotas
	f.Float64Var(&q.MessagesPerMinute, "quota-messages", q.MessagesPerMinute,
		"messages a minute that the intake takes from one sender: the outsiders of one role in one run, for one feed or policy; 0 is no bound")
	f.Float64Var(&q.BytesPerMinute, "quota-bytes", q.BytesPerMinute,
		"bytes a minute of these messages, and of the objects that they name and the intake reads; 0 is no bound")
	f.Float64Var(&q.DeadLettersPerDay, "quota-dead-letters", q.DeadLettersPerDay,
		"refused messages a day of one sender that are recorded as dead letters; 0 is no bound")
	f.DurationVar(&q.DeadLettersFor, "dead-letters-for", q.DeadLettersFor,
		"how long the log keeps the dead letter of a refused message; 0 is for ever")
}

// part is something that runs until its context ends.
type part func(ctx context.Context, env pipeline.Env, s Settings) error

// Names of participants that are no services of the topology: they are
// outsiders that come with Rondo.
const (
	policyPart  = "policy"
	TrainerPart = "trainer"
)

var parts = map[string]part{
	topology.Intake: func(ctx context.Context, env pipeline.Env, s Settings) error {
		return intake.RunWith(ctx, env, s.quotas)
	},
	topology.QuerySampler: func(ctx context.Context, env pipeline.Env,
		_ Settings) error {
		return querysampler.Run(ctx, env)
	},
	topology.AdvantageCalculator: func(ctx context.Context, env pipeline.Env, _ Settings) error {
		return advantagecalculator.Run(ctx, env)
	},
	topology.TrainerFeeder: func(ctx context.Context, env pipeline.Env,
		_ Settings) error {
		return trainerfeeder.Run(ctx, env)
	},
	topology.WeightPublisher: func(ctx context.Context, env pipeline.Env,
		_ Settings) error {
		return weightpublisher.Run(ctx, env)
	},
	topology.Archiver: func(ctx context.Context, env pipeline.Env,
		_ Settings) error {
		return archiver.Run(ctx, env)
	},
	topology.DeadLetters: func(ctx context.Context, env pipeline.Env,
		_ Settings) error {
		return deadletters.Run(ctx, env)
	},
	topology.IndexUpdater: func(ctx context.Context, env pipeline.Env, s Settings) error {
		opts, err := s.index.Options(env.Log.Store())
		if err != nil {
			return err
		}
		return indexupdater.Run(ctx, env, opts)
	},
	topology.Generator: func(ctx context.Context, env pipeline.Env, s Settings) error {
		opts := generator.DefaultOptions()
		opts.Slots = s.generatorSlots
		go s.servers.FollowVersions(ctx, env.Log.Reader)
		return generator.Run(ctx, env, s.servers, opts)
	},
	topology.ToolRunner: func(ctx context.Context, env pipeline.Env, s Settings) error {
		if err := s.checkRunner(); err != nil {
			return err
		}
		network, err := s.network()
		if err != nil {
			return err
		}
		layers, err := agents.OpenCache(filepath.Join(s.ToolchainCache, "agents"), agents.CacheBytes)
		if err != nil { // runs without agents do not need it
			env.Logger.Warn("this tool runner starts no agents that have a layer", "error", err)
		}
		models, err := gateway.New(env, s.servers, gateway.DefaultOptions())
		if err != nil {
			return err
		}
		go s.servers.FollowVersions(ctx, env.Log.Reader)
		return toolrunner.Run(ctx, env, toolrunner.Options{
			Network: network, Layers: layers, Model: func(run,
				rollout string) toolrunner.Model {
				return models.Agent(run, rollout)
			},
			Slots: s.toolSlots, Pool: s.Pool, Labels: s.labels, Capacity: s.capacity, Machine: s.Machine, Keys: s.keys,
		})
	},
	topology.Scorer: func(ctx context.Context, env pipeline.Env, s Settings) error {
		return scorer.Run(ctx, env, scorer.Options{Slots: s.ScorerSlots, Machine: s.Machine, Keys: s.keys})
	},
	topology.Teacher: func(ctx context.Context, env pipeline.Env,
		s Settings) error {
		return teacher.Run(ctx, env, s.keys)
	},
	policyPart:         servePolicy,
	TrainerPart:        train,
	gatewayPart:        serveGateway,
	topology.Dashboard: serveDashboard,
}

// checkRunner checks what a tool runner can be told.
func (s *Settings) checkRunner() error {
	if s.capacity < 1 {
		return fmt.Errorf("--capacity %d: at least 1 sandbox is needed", s.capacity)
	}
	for _, label := range s.labels {
		if !runfile.ValidLabel(label) {
			return fmt.Errorf("--label %q: %s", label, runfile.LabelRule)
		}
	}
	return nil
}

// network is what the tool runner lets runs reach.
func (s *Settings) network() (egress.Options, error) {
	opts := egress.Options{Allow: s.allowNetwork, Registries: map[string][]string{}}
	for _, entry := range s.allowNetwork {
		if err := netaccess.CheckAllowed(entry); err != nil {
			return opts, fmt.Errorf("--allow-network: %w", err)
		}
	}
	for _, text := range s.registries {
		name, bases, err := egress.ParseRegistry(text)
		if err != nil {
			return opts, fmt.Errorf("--registry: %w", err)
		}
		opts.Registries[name] = bases
	}
	return opts, nil
}

func partNames() []string { return slices.Sorted(maps.Keys(parts)) }

// NeedSandbox are the parts that run what models and tasks say.
var NeedSandbox = []string{topology.ToolRunner, topology.Scorer}

// CheckSandbox really runs a command in a sandbox, so that a refusal is seen
// before any work is lost.
func CheckSandbox(ctx context.Context, names []string, s Settings) error {
	if !slices.ContainsFunc(names, func(n string) bool { return slices.Contains(NeedSandbox, n) }) || s.AllowInsecure {
		return nil
	}
	if s.Disk != "" {
		if err := sandbox.CheckDisk(s.Disk, 0); err != nil {
			return fmt.Errorf("--workspace-disk: %w", err)
		}
	}
	buildFirstProcess(ctx)
	if _, err := sandbox.Probe(ctx); err != nil {
		return fmt.Errorf("this machine gives no sandbox: %w (--allow-insecure runs tools without isolation; only for tasks and models that you trust)", err)
	}
	return nil
}

// RunParts runs the named parts until the context ends or one of them fails.
func RunParts(ctx context.Context, names []string, log *eventlog.Log, dir string, l *slog.Logger,
	metrics prometheus.Registerer, s Settings) error {
	if err := CheckSandbox(ctx, names, s); err != nil {
		return err
	}
	var err error
	if s.keys, err = ReadKeys(s.EndpointKeys); err != nil {
		return err
	}
	if s.servers, err = s.newFleet(l, metrics); err != nil {
		return err
	}
	s.Health.WatchServers(s.serversAway)
	host, _ := os.Hostname()
	env := pipeline.Env{Log: log, Dir: dir, Logger: l, Metrics: metrics,
		Instance: fmt.Sprintf("%s-%d", host, os.Getpid()), Health: s.Health}
	env.Tracing, err = tracing.New(ctx, tracing.Options{
		Endpoint: s.otlpEndpoint, Log: log.Reader, Logger: l, Metrics: metrics, Instance: env.Instance,
		Version: buildVersion(),
	})
	if err != nil {
		return err
	}
	defer env.Tracing.Close()
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

// buildVersion is that of this program, "" where its build has none.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Version
}

// serveHTTP serves a handler until the context ends.
func serveHTTP(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10}
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

// ServeOpen serves a handler that asks for no keys.
func (s *Settings) ServeOpen(ctx context.Context, listener net.Listener, h http.Handler) error {
	return serveHTTP(ctx, listener, browser.Guard(listener.Addr(), s.hosts, h))
}

// New makes the command `rondo service`.
func New(g *app.Global) *cobra.Command {
	s := DefaultSettings()
	var metricsListen string
	cmd := &cobra.Command{
		Use:   "service NAME...",
		Short: "Run chosen services against an external NATS server and store",
		Long: "Run chosen services, or the built-in policy, the reference trainer, the gateway for harnesses and the dashboard: " +
			fmt.Sprint(partNames()) + ".",
		Example: `  rondo service intake querysampler --nats nats://127.0.0.1:4222 --store /srv/rondo
  rondo service toolrunner scorer --nats nats://nats:4222 --store 's3://rondo?endpoint=http://s3:7070'
  rondo service toolrunner --allow-network pypi,npm --registry pypi=https://mirror.example.org/simple/ --nats nats://nats:4222 --store /srv/rondo
  rondo service generator --log-format json --otlp-endpoint http://collector:4318 --nats nats://nats:4222 --store /srv/rondo
  rondo service intake deadletters --replicas 3 --nats nats://n1:4222,nats://n2:4222,nats://n3:4222 --store 's3://rondo?endpoint=http://s3:7070'
  rondo service gateway --gateway-listen :8790 --gateway-tenants tenants.yaml --nats nats://nats:4222 --store /srv/rondo`,
		Args: cobra.MatchAll(cobra.MinimumNArgs(1), func(cmd *cobra.Command, names []string) error {
			return cobra.OnlyValidArgs(cmd, names)
		}),
		ValidArgs: partNames(),
		RunE: func(cmd *cobra.Command, names []string) error {
			if g.NATS == "" || g.Store == "" {
				return fmt.Errorf("services of their own need --nats and --store; `rondo up` runs everything embedded")
			}
			// Only the intake may make the streams; the other services wait for them.
			g.Follows, g.AwaitLog = true, true
			g.AwaitStreams = !slices.Contains(names, topology.Intake)
			if err := runfile.CheckReplicas(g.Replicas); err != nil {
				return fmt.Errorf("--replicas: %w", err)
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			registry := plane.NewMetrics()
			if s.Health, err = p.Watch(cmd.Context(), app.Logger(slog.LevelInfo), registry); err != nil {
				return err
			}
			if metricsListen != "" {
				listener, err := net.Listen("tcp", metricsListen)
				if err != nil {
					return fmt.Errorf("serve metrics: %w", err)
				}
				go s.ServeOpen(cmd.Context(), listener, plane.StatusHandler(registry, s.Health))
			}
			app.Logger(slog.LevelInfo).Info("services started", "names", names, "nats", p.Conn.ConnectedUrlRedacted())
			return RunParts(cmd.Context(), names, p.Log, g.Dir, app.Logger(slog.LevelInfo), registry, s)
		},
	}
	s.AddFlags(cmd)
	s.Gateway.AddFlags(cmd, "127.0.0.1:8790")
	s.Dashboard.AddFlags(cmd.Flags(), "127.0.0.1:8780")
	AddReplicasFlag(cmd, g)
	cmd.Flags().StringVar(&s.Builtin, "builtin-endpoint", s.Builtin, "where the generator finds the built-in policy")
	s.AddPolicyFlag(cmd, "127.0.0.1:8700")
	cmd.Flags().StringVar(&metricsListen, "metrics-listen", "",
		"address for /metrics, /healthz and /readyz, for example :9100")
	return cmd
}

// AddSandboxFlags adds the flags of services that run sandboxes.
func (s *Settings) AddSandboxFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.AllowInsecure, "allow-insecure", false, "run without isolation where the kernel refuses it")
	cmd.Flags().StringVar(&s.ToolchainCache, "toolchain-cache", s.ToolchainCache,
		"where toolchains keep their warmed caches, and the layers of agents are unpacked")
	cmd.Flags().StringVar(&s.Disk, "workspace-disk", "",
		"directory on whose disk workspaces of more than 256 MiB lie; takes root and loop devices. Without it the machine "+
			"has no room for them")
}

// AddReplicasFlag adds the flag of how many servers of a cluster hold the log.
func AddReplicasFlag(cmd *cobra.Command, g *app.Global) {
	cmd.Flags().IntVar(&g.Replicas, "replicas", 0,
		"servers of the NATS cluster that hold the log: 1, 3 or 5; the intake makes the streams so, and changes the fixed ones that "+
			"have another number. 0 keeps what the catalogue has")
}

// ParseDurability reads "always" as 0.
func ParseDurability(text string) (time.Duration, error) {
	if text == "always" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("--durability %q: use always, or an interval such as 100ms", text)
	}
	return d, nil
}

// AddPolicyFlag adds the flag of where the built-in policy listens.
func (s *Settings) AddPolicyFlag(cmd *cobra.Command, standard string) {
	cmd.Flags().StringVar(&s.PolicyListen, "policy-listen", standard, "where the built-in policy listens")
}

// AnyPort lets the built-in policy listen on a port that is free. Runs name it
// "builtin", so it may change.
const AnyPort = "127.0.0.1:0"

// PlacePolicy lets the generator of this process find the built-in policy that listens
// there in the same process.
func (s *Settings) PlacePolicy(listen string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("--policy-listen: %w: name another address", err)
	}
	defer listener.Close()
	s.PolicyListen = listener.Addr().String()
	reached := *listener.Addr().(*net.TCPAddr)
	if reached.IP.IsUnspecified() {
		reached.IP = net.IPv4(127, 0, 0, 1)
	}
	s.Builtin = "http://" + reached.String() + "/v1"
	return nil
}
