package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// listing is what `rondo agents list --json` answers.
type listing struct {
	Layers   []agents.Stored  `json:"layers"`
	Profiles []agents.Profile `json:"profiles"`
}

func newList(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the layers in the store, and the shipped profiles", Args: cobra.NoArgs,
		Example: "  rondo agents list\n  rondo agents list --json",
		RunE: plane.Command(g, func(cmd *cobra.Command, _ []string, p *plane.Plane) error {
			all := listing{Layers: []agents.Stored{}}
			stored, err := agents.List(cmd.Context(), p.Store)
			if err != nil {
				return err
			}
			all.Layers = append(all.Layers, stored...)
			for _, name := range app.SortedKeys(agents.Shipped()) {
				all.Profiles = append(all.Profiles, agents.Shipped()[name])
			}
			return app.Show(cmd, g, all, func(w io.Writer) error { return printList(w, all) })
		}),
	}
}

func printList(w io.Writer, all listing) error {
	if len(all.Layers) == 0 {
		fmt.Fprintln(w, "The store has no layer yet: rondo agents build NAME makes one.")
	} else {
		t := app.NewTable("LAYER", "AGENT", "VERSION", "PLATFORM", "FILES", "BYTES", "BUILT")
		for _, s := range all.Layers {
			if s.Damaged != "" {
				t.Row(s.Digest[:12], "(damaged)", "", "", "", "", s.Built.UTC().Format(time.DateTime))
				continue
			}
			t.Row(s.Digest[:12], s.Profile.Name, s.Profile.Install.Version, s.Platform, s.Files, s.Bytes,
				s.Built.UTC().Format(time.DateTime))
		}
		if err := t.Print(w); err != nil {
			return err
		}
	}
	for _, s := range all.Layers {
		if s.Damaged != "" {
			fmt.Fprintf(w, "damaged: %s\n  rondo agents remove %s\n", app.Line(s.Damaged, 300), s.Digest)
		}
	}
	fmt.Fprintln(w)
	t := app.NewTable("PROFILE", "PACKAGE", "VERSION")
	for _, p := range all.Profiles {
		t.Row(p.Name, source(p.Install), p.Install.Version)
	}
	return t.Print(w)
}

func source(in agents.Install) string {
	switch {
	case in.NPM != "":
		return "npm " + in.NPM
	case in.PyPI != "":
		return "PyPI " + in.PyPI
	}
	return "files " + in.Files
}

// shownLayer is what `rondo agents show --json` answers: a layer, or a profile of
// which the store has none.
type shownLayer struct {
	Layer   *agents.Stored  `json:"layer,omitempty"`
	Profile *agents.Profile `json:"profile,omitempty"`
}

func newShow(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME[@VERSION]|DIGEST", Short: "Show a layer, or a shipped profile that has none yet",
		Args: cobra.ExactArgs(1),
		Long: `Show prints what a layer holds and how its agent is started. NAME is the newest layer of that
agent; where there is none, the shipped profile is shown. The first six digits of a digest are enough, if no
other one has them.`,
		Example: "  rondo agents show codex\n  rondo agents show codex@0.171.0 --json\n  rondo agents show 4c1d9e",
		RunE: plane.Command(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			var found shownLayer
			stored, err := agents.Find(cmd.Context(), p.Store, args[0])
			profile, shipped := agents.Shipped()[args[0]]
			switch {
			case err == nil:
				found.Layer = &stored
			case errors.Is(err, agents.ErrNoLayer) && shipped:
				found.Profile = &profile
			default:
				return err
			}
			return app.Show(cmd, g, found, func(w io.Writer) error { return found.print(w) })
		}),
	}
	cmd.ValidArgsFunction = completeLayers(g, true)
	return cmd
}

func (s shownLayer) print(w io.Writer) error {
	profile := s.Profile
	if l := s.Layer; l != nil {
		profile = &l.Profile
		fmt.Fprintf(w, "layer %s\nbuilt %s\n%d files, %d bytes, for %s", l.Digest,
			l.Built.UTC().Format(time.DateTime), l.Files, l.Bytes, l.Platform)
		if l.Glibc != "" {
			fmt.Fprintf(w, " with glibc %s or later", l.Glibc)
		}
		if l.Interpreter != "" {
			fmt.Fprintf(w, "; it brings %s", l.Interpreter)
		}
		fmt.Fprintln(w)
	} else {
		fmt.Fprintf(w, "profile %s: the store has no layer of it (rondo agents build %s)\n", profile.Name, profile.Name)
	}
	text, err := json.MarshalIndent(profile, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintln(w, app.Clean(string(text)))
	return nil
}

func newRemove(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove DIGEST", Short: "Remove a layer that no open run names", Args: cobra.ExactArgs(1),
		Long: `Remove takes a layer out of the list. What only it held is garbage then, which rondo gc --delete
deletes. A layer that a run names which is not closed stays. A closed run whose layer is gone cannot be
continued (rondo run continue); its replays start no agent, and need none. A damaged layer is removed by its
whole digest.`,
		Example: "  rondo agents remove 4c1d9e0f1a2b",
		RunE: plane.Command(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			found, err := agents.Find(cmd.Context(), p.Store, args[0])
			if agents.Valid(args[0]) && errors.Is(err, storage.ErrCorrupt) {
				found, err = agents.Stored{Digest: args[0], Damaged: err.Error()}, nil
			}
			if err != nil {
				return err
			}
			if !strings.HasPrefix(found.Digest, args[0]) {
				return fmt.Errorf("%s is an agent: name the layer to remove by its digest, %s", args[0], found.Digest)
			}
			run, err := namedBy(cmd.Context(), p.Log, found.Digest)
			if err != nil {
				return err
			}
			if run != "" {
				return fmt.Errorf("run %s names the layer %s: close it first (rondo run close %s)", run,
					found.Digest, run)
			}
			if err := agents.Remove(cmd.Context(), p.Store, found.Digest); err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), map[string]string{"removed": found.Digest})
			}
			name := found.Profile.Name + " " + found.Profile.Install.Version
			if found.Damaged != "" {
				name = "an unknown agent"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "layer %s of %s is removed\n", found.Digest, name)
			return err
		}),
	}
	cmd.ValidArgsFunction = completeLayers(g, false)
	return cmd
}

// namedBy is an open run whose agent has a layer, "" for none.
func namedBy(ctx context.Context, log *eventlog.Log, digest string) (string, error) {
	runs, err := log.Runs(ctx)
	if err != nil {
		return "", err
	}
	for _, run := range runs {
		state, _, err := log.RunState(ctx, run)
		if err != nil {
			return "", err
		}
		if state == "closed" {
			continue
		}
		cfg, err := log.Config(ctx, run)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue
		}
		if err != nil {
			return "", err
		}
		if cfg.Agent != nil && cfg.Agent.Layer == digest {
			return run, nil
		}
	}
	return "", nil
}
