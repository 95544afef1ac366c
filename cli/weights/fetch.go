package weights

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/fetch"
)

// fetchOptions are the flags of `rondo weights fetch`.
type fetchOptions struct {
	to, base string
	version  int64
	follow   bool
	canary   bool
	keep     int
	from     []string
	wait     time.Duration

	kind, exec     string
	adapters       int
	urls, replicas []string
}

func newFetch(g *app.Global) *cobra.Command {
	var o fetchOptions
	cmd := &cobra.Command{
		Use: "fetch POLICY", Short: "Lay a version into a folder, and bring inference servers to it",
		Args: cobra.ExactArgs(1),
		Long: `Fetch reads a version of a policy from the store, by default the current one, into DIR/v000012, and lets the link DIR/current point to it. It does so when
every file has been read and its digest verified: until then the folder shows the version before. A fetch that was interrupted goes on where
it was. Files that a version in the folder has already are not read again. One process at a time fetches into a folder.

With --follow it goes on with each version that is published, without those that were replaced by a newer one meanwhile. Where a version is promoted
(` + "`rondo weights promote`" + `) it stays at that, or with --canary at the one that a share of the rollouts gets. It goes on through every
failure of the network until it is interrupted. A policy that has no version yet is waited for, and it says so. All but the --keep newest versions are removed, and none that a server serves or loads.

With --from, files and deltas are read from the first of these stores that has them, and from the origin where none has: name the nearest mirror first. With
--follow, what all of them lack is waited for up to --wait. A manifest is read from the origin, so a mirror cannot give other bytes than were published.

With --engine, servers load each version, and the runs are told (weights.activated) when the server itself says that it serves it:
  vllm     vLLM 0.32 or later, with VLLM_SERVER_DEV_MODE=1. One with the weight-transfer backend rondo of the Python package sets only the elements that changed
  vllm-lora  each version is an adapter of vLLM's model, under the name POLICY@VERSION, with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1. Of the policy's adapters --adapters
             stay loaded; one that requests hold is not unloaded
  sglang   SGLang
  sglang-lora  the same of SGLang's model, with --enable-lora; the server itself waits for the requests of an adapter that it unloads
  command  any other: --exec PROGRAM runs with RONDO_POLICY, RONDO_VERSION and RONDO_WEIGHTS (the version's folder) in its environment, without a shell,
           and ends with 0 when the server has the version; with --engine-url, /health of the server must answer 200 then
A server that was started again is brought to the version at once. Turns go only to servers that have caught up where --replica names
the server as run files do: by its URL, which is --engine-url with /v1 unless you set it. ` + service.EndpointKey + ` is sent to the servers.`,
		Example: `  rondo weights fetch my-model --to /models/my-model
  rondo weights fetch my-model --to /models/my-model --version 12
  rondo weights fetch my-model --to /models/my-model --follow --from 's3://rondo-london?region=eu-west-2'
  rondo weights fetch my-model --to /models/my-model --follow --engine vllm --engine-url http://127.0.0.1:8000 --replica http://10.0.0.7:8000/v1
  rondo weights fetch my-tenant --to /models/my-tenant --follow --engine vllm-lora --engine-url http://127.0.0.1:8000 --replica http://10.0.0.7:8000/v1
  rondo weights fetch my-model --to /models/my-model --follow --engine command --exec /usr/local/bin/restart-llama --engine-url http://127.0.0.1:8080`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			g.Follows, g.Outsider = o.follow, true // a role that serves a policy may do it
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			folder, err := fetch.Open(o.to, args[0])
			if err != nil {
				return err
			}
			defer folder.Close()
			near, closeNear, err := openNear(cmd.Context(), o.from)
			if err != nil {
				return err
			}
			defer closeNear()
			if !o.follow {
				o.wait = 0
			}
			folder.ReadFrom(o.wait, near...)
			s := &sidecar{fetchOptions: o, policy: args[0], plane: p, folder: folder, show: app.NewProgress(g),
				json: g.JSON, out: cmd.OutOrStdout()}
			if err := s.attach(os.Getenv(service.EndpointKey)); err != nil {
				return err
			}
			if !o.follow {
				return s.once(cmd.Context())
			}
			tellWait(cmd.Context(), p, args[0], s.show)
			s.follow(cmd.Context())
			return plane.LostOr(cmd.Context(), nil)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "folder of the versions")
	f.StringVar(&o.base, "base", "",
		"folder of the model: its config and tokenizer are copied into versions that have none")
	f.Int64Var(&o.version, "version", 0, "this version (default: the current one)")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with each version that is published")
	f.BoolVar(&o.canary, "canary", false,
		"with --follow, go to the version that a share of the rollouts gets, where there is one")
	f.IntVar(&o.keep, "keep", 2, "versions that stay in the folder")
	f.StringSliceVar(&o.from, "from", nil, "stores that mirror the versions, the nearest first")
	f.DurationVar(&o.wait, "wait", time.Minute, "with --follow, how long to wait for what the stores of --from lack")
	f.StringVar(&o.kind, "engine", "",
		"kind of the servers that load the versions: vllm, vllm-lora, sglang, sglang-lora or command")
	f.IntVar(&o.adapters, "adapters", 2, "adapters of the policy that stay loaded in a vllm-lora or sglang-lora server")
	f.StringSliceVar(&o.urls, "engine-url", nil, "address of a server; may be repeated")
	f.StringSliceVar(&o.replicas, "replica", nil, "how run files name the server, once for each --engine-url")
	f.StringVar(&o.exec, "exec", "", "program that brings a server to a version, with arguments that have no spaces")
	_ = cmd.MarkFlagRequired("to")
	_ = cmd.RegisterFlagCompletionFunc("engine", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))
	cmd.ValidArgsFunction = completePolicies(g)
	return cmd
}

func (o *fetchOptions) check() error {
	switch {
	case o.keep < 1:
		return fmt.Errorf("--keep %d: must be at least 1", o.keep)
	case o.version < 0:
		return fmt.Errorf("--version %d: must be positive", o.version)
	case o.follow && o.version > 0:
		return errors.New("--follow goes to the newest version: leave out --version")
	case o.canary && !o.follow:
		return errors.New("--canary needs --follow")
	case o.wait < 0:
		return fmt.Errorf("--wait %s: must not be negative", o.wait)
	case o.kind == "" && (len(o.urls) > 0 || o.exec != "" || len(o.replicas) > 0):
		return errors.New("--engine-url, --exec and --replica need --engine")
	case o.kind != "" && o.kind != kindCommand && len(o.urls) == 0:
		return fmt.Errorf("--engine %s needs --engine-url", o.kind)
	case (o.kind == kindCommand) != (o.exec != ""):
		return errors.New("--exec and --engine command need each other")
	case o.adapters < 2:
		return fmt.Errorf("--adapters %d: must be at least 2, since requests in flight hold the one before", o.adapters)
	case o.kind == kindCommand && len(o.urls) > 1:
		return errors.New("--engine command has one server: give others a side-car and a folder of their own")
	case len(o.replicas) > 0 && len(o.replicas) != max(1, len(o.urls)):
		return fmt.Errorf("%d --replica for %d servers: name each or none", len(o.replicas), max(1, len(o.urls)))
	}
	return nil
}

// completePolicies offers the policies that have versions in the store.
func completePolicies(g *app.Global) func(*cobra.Command, []string,
	string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		p, err := plane.Connect(ctx, g)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer p.Close()
		names, _ := weights.Policies(ctx, p.Store)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// current is the version to fetch where none is named.
func current(ctx context.Context, p *plane.Plane, policy string) (int64, error) {
	version, _, err := weights.Current(ctx, p.Store, policy)
	if errors.Is(err, storage.ErrNotFound) {
		return 0, fmt.Errorf("nothing was published for policy %s: `rondo weights list` names the policies", policy)
	}
	return version, err
}

// tellWait says that a policy has no version to follow yet. A side-car may be
// there before its policy.
func tellWait(ctx context.Context, p *plane.Plane, policy string, show *app.Progress) {
	if _, err := current(ctx, p, policy); err != nil {
		show.Line("waiting for the first version: %v", err)
	}
}

// noteID names a statement about a replica, so that one that is repeated is one fact.
func noteID(policy, replica string, version int64, lost bool, at time.Time) string {
	return "activated-" + storage.Digest(fmt.Appendf(nil, "%s %s %d %v %d", policy, replica, version,
		lost, at.UnixNano()))[:32]
}
