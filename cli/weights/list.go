package weights

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/diff"
	"github.com/rondo-rl/rondo/weights/mirror"
)

// listed is a version as `rondo weights list` shows it.
type listed struct {
	Policy  string `json:"policy"`
	Version int64  `json:"version"`
	Current bool   `json:"current"`
	// of the rollouts that it gets, where versions are promoted by hand
	Share     float64        `json:"share,omitempty"`
	Format    string         `json:"format"`
	Base      int64          `json:"base"`
	Bytes     int64          `json:"bytes"`
	Published time.Time      `json:"published"`
	Collected *time.Time     `json:"collected,omitempty"` // its files are deleted
	Replicas  []string       `json:"replicas,omitempty"`  // that serve it
	Files     []weights.File `json:"files,omitempty"`
	Delta     *weights.Delta `json:"delta,omitempty"` // that leads to it
}

// replica is what one of them said last.
type replica struct {
	Replica string    `json:"replica"`
	Version int64     `json:"version"`
	Lag     int64     `json:"lag"` // versions behind the current one
	Lost    bool      `json:"lost,omitempty"`
	Seconds float64   `json:"seconds,omitempty"`
	At      time.Time `json:"at"`
}

func newList(g *app.Global) *cobra.Command {
	var last int
	cmd := &cobra.Command{
		Use:     "list [POLICY]",
		Short:   "List versions with their bytes and those of their deltas, and which replicas serve them",
		Args:    cobra.MaximumNArgs(1),
		Example: "  rondo weights list\n  rondo weights list my-model --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if last < 1 {
				return fmt.Errorf("--last %d: must be at least 1", last)
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			if len(args) == 0 {
				if args, err = weights.Policies(cmd.Context(), p.Store); err != nil {
					return err
				}
			}
			all := []listed{}
			for _, policy := range args {
				versions, err := versionsOf(cmd.Context(), p, policy, last)
				if err != nil {
					return err
				}
				all = append(all, versions...)
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), all)
			}
			t := app.NewColumns(cmd.OutOrStdout())
			fmt.Fprintln(t, "POLICY\tVERSION\tFORMAT\tBYTES\tDELTA\tPUBLISHED\tSERVED BY")
			for _, v := range all {
				number := fmt.Sprint(v.Version)
				if v.Current {
					number += " (current)"
				}
				number += promotion(v.Share)
				served := strings.Join(v.Replicas, " ")
				if v.Collected != nil {
					served = "collected " + v.Collected.UTC().Format(time.DateTime)
				}
				size := "-"
				if v.Delta != nil {
					size = fmt.Sprint(v.Delta.Size)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", v.Policy, number, v.Format, v.Bytes, size,
					v.Published.UTC().Format(time.DateTime), served)
			}
			return t.Flush()
		},
	}
	cmd.Flags().IntVar(&last, "last", 20, "versions of each policy, the newest")
	cmd.ValidArgsFunction = completePolicies(g)
	return cmd
}

// versionsOf are the newest versions of a policy.
func versionsOf(ctx context.Context, p *plane.Plane, policy string, last int) (all []listed, err error) {
	newest, err := current(ctx, p, policy)
	if err != nil {
		return nil, err
	}
	stored, err := weights.Versions(ctx, p.Store, policy)
	if err != nil {
		return nil, err
	}
	replicas, err := replicasOf(ctx, p.Log, policy, newest)
	if err != nil {
		return nil, err
	}
	promoted, err := lastPromotion(ctx, p.Log.Reader, policy)
	if err != nil {
		return nil, err
	}
	for _, s := range stored[max(0, len(stored)-last):] {
		v, err := describe(ctx, p.Store, policy, s)
		if err != nil {
			return nil, err
		}
		v.Current, v.Files, v.Share = s.Version == newest, nil, promoted.ShareOf(s.Version)
		for _, r := range replicas {
			if r.Version == s.Version && !r.Lost {
				v.Replicas = append(v.Replicas, r.Replica)
			}
		}
		all = append(all, v)
	}
	return all, nil
}

func describe(ctx context.Context, s storage.Store, policy string, stored weights.Stored) (listed, error) {
	m, _, err := weights.ReadManifest(ctx, s, policy, stored.Version)
	if err != nil {
		return listed{}, err
	}
	v := listed{Policy: policy, Version: m.Version, Format: m.Format, Base: m.Base,
		Published: stored.Manifest.Modified, Files: m.Files}
	for _, f := range m.Files {
		v.Bytes += f.Size
	}
	if !stored.Collected.IsZero() {
		v.Collected = &stored.Collected
		return v, nil
	}
	if v.Delta, err = weights.FetchDelta(ctx, s, policy, stored.Version); storage.IsUnusable(err) {
		return v, nil
	}
	return v, err
}

// maxStatements bounds how far back statements of replicas are read: one of each that states
// something is among them, unless it lags far.
const maxStatements = 4096

// replicasOf reads what the replicas of a policy said last, from the end of its chain.
func replicasOf(ctx context.Context, log *eventlog.Log, policy string, newest int64) (found []replica, err error) {
	seen := map[string]bool{}
	e, err := log.Last(ctx, events.Catalogue, events.WeightsActivatedType.Kind(), policy)
	for range maxStatements {
		if errors.Is(err, eventlog.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		if e.Type == events.WeightsActivatedType {
			said, err := events.Data[events.WeightsActivated](e)
			if err != nil {
				return nil, err
			}
			if !seen[said.Replica] {
				seen[said.Replica] = true
				found = append(found, replica{Replica: said.Replica, Version: said.Version, Lag: newest - said.Version,
					Lost: said.Lost, Seconds: said.Seconds, At: e.Time})
			}
		}
		if e.Prev == 0 {
			break
		}
		e, err = log.Event(ctx, events.Catalogue, e.Prev)
	}
	slices.SortFunc(found, func(a, b replica) int { return strings.Compare(a.Replica, b.Replica) })
	return found, nil
}

// shownVersion is what `rondo weights show` answers.
type shownVersion struct {
	listed
	Layers  []diff.Packed `json:"layers,omitempty"` // what the delta takes of each
	Servers []replica     `json:"servers"`
	Mirror  *mirror.Lag   `json:"mirror,omitempty"`
}

func newShow(g *app.Global) *cobra.Command {
	var version int64
	var mirrored string
	cmd := &cobra.Command{
		Use: "show POLICY", Short: "Show a version's files and its delta, and how far replicas are behind",
		Args: cobra.ExactArgs(1),
		Long: `Show prints a version's files, the delta that leads to it from the version before, the part of each layer's bytes that this delta takes, and the servers that serve the
policy. --json has the same. ` + "`rondo weights diff`" + ` counts which elements changed, and reads both versions for it; show reads an index.`,
		Example: "  rondo weights show my-model\n  rondo weights show my-model --version 12 --json\n  rondo weights show my-model --mirror 's3://rondo-london?region=eu-west-2'",
		RunE: plane.Command(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			newest, err := current(cmd.Context(), p, args[0])
			if err != nil {
				return err
			}
			version = cmp.Or(version, newest)
			stored, err := stat(cmd.Context(), p.Store, args[0], version)
			if err != nil {
				return unknownVersion(args[0], version, err)
			}
			r := shownVersion{}
			if r.listed, err = describe(cmd.Context(), p.Store, args[0], stored); err != nil {
				return err
			}
			r.Current = version == newest
			if r.Delta != nil {
				if r.Layers, err = diff.PackedLayers(cmd.Context(), p.Store, r.Delta.Ref); storage.IsUnusable(err) {
					err = nil // as for side-cars, which read the files
				}
				if err != nil {
					return err
				}
			}
			promoted, err := lastPromotion(cmd.Context(), p.Log.Reader, args[0])
			if err != nil {
				return err
			}
			r.Share = promoted.ShareOf(version)
			if r.Servers, err = replicasOf(cmd.Context(), p.Log, args[0], newest); err != nil {
				return err
			}
			if mirrored != "" {
				if r.Mirror, err = lagAt(cmd.Context(), p.Store, mirrored, args[0]); err != nil {
					return err
				}
			}
			return app.Show(cmd, g, r, func(w io.Writer) error { return printShown(w, r, newest) })
		}),
	}
	cmd.Flags().Int64Var(&version, "version", 0, "this version (default: the current one)")
	cmd.Flags().StringVar(&mirrored, "mirror", "", "a store that mirrors the versions: show how far it is behind")
	cmd.ValidArgsFunction = completePolicies(g)
	return cmd
}

// unknownVersion says clearly that there is no such version, where that is what is wrong.
func unknownVersion(policy string, version int64, err error) error {
	if errors.Is(err, storage.ErrNotFound) && !errors.Is(err, weights.ErrCollected) {
		return fmt.Errorf("policy %s has no version %d: `rondo weights list %s` lists its versions", policy, version,
			policy)
	}
	return fmt.Errorf("policy %s, version %d: %w", policy, version, err)
}

// stat looks one version up.
func stat(ctx context.Context, s storage.Store, policy string, version int64) (found weights.Stored, err error) {
	found.Version = version
	if found.Manifest, err = s.Stat(ctx, weights.ManifestKey(policy, version)); err != nil {
		return found, err
	}
	collected, err := s.Stat(ctx, weights.CollectedKey(policy, version))
	if found.Collected = collected.Modified; errors.Is(err, storage.ErrNotFound) {
		err = nil
	}
	return found, err
}

func printShown(w io.Writer, r shownVersion, newest int64) error {
	fmt.Fprintf(w, "policy %s, version %d%s (%s, %d bytes), published %s; the current one is %d\n",
		r.Policy, r.Version, promotion(r.Share), r.Format, r.Bytes, r.Published.UTC().Format(time.DateTime), newest)
	if r.Collected != nil {
		fmt.Fprintf(w, "it was collected %s: its files are deleted\n", r.Collected.UTC().Format(time.DateTime))
	}
	t := app.NewColumns(w)
	for _, f := range r.Files {
		fmt.Fprintf(t, "  %s\t%d bytes\t%s\n", f.Name, f.Size, f.SHA256)
	}
	if r.Delta != nil {
		fmt.Fprintf(t, "  delta from version %d\t%d bytes\t%s\n", r.Delta.Base, r.Delta.Size, r.Delta.SHA256)
	}
	printPacked(t, r.Layers)
	for _, s := range r.Servers {
		state := fmt.Sprintf("serves version %d, %d behind", s.Version, s.Lag)
		if s.Lost {
			state = fmt.Sprintf("does not serve version %d any more", s.Version)
		}
		fmt.Fprintf(t, "  %s\t%s\tsince %s\n", s.Replica, state, s.At.UTC().Format(time.DateTime))
	}
	if r.Mirror != nil {
		fmt.Fprintf(t, "  mirror\t%s\n", lagText(*r.Mirror))
	}
	return t.Flush()
}

// lagAt tells how far the store at a URL is behind.
func lagAt(ctx context.Context, from storage.Store, url, policy string) (*mirror.Lag, error) {
	to, err := openThere(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("--mirror: %w", err)
	}
	defer to.Close()
	lag, err := mirror.LagOf(ctx, from, to, policy, time.Now())
	return &lag, err
}
