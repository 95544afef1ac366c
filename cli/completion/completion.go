// Package completion offers the names of runs, groups, rollouts, feeds and policies of a running
// plane where a shell completes a command line. Where no plane answers at once it offers
// nothing, and says nothing.
package completion

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
)

const (
	// patience is how long a shell waits for names.
	patience = 700 * time.Millisecond
	// most bounds the names that are offered.
	most = 500
)

// Add lets commands complete the arguments that their usage names: RUN, GROUP, ROLLOUT and POLICY,
// and the flags --run, --feed and --policy. A command that has a completion of its own keeps it.
// OLD is the name of a run, too. open RUN and replay RUN --as NEW take new names as well.
func Add(g *app.Global, cmd *cobra.Command) {
	if names := arguments(cmd.Use); len(names) > 0 && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string,
			begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			at := len(args)
			if at >= len(names) && strings.HasSuffix(cmd.Use, "...") {
				at = len(names) - 1
			}
			if at >= len(names) || names[at] == "" {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return offer(cmd.Context(), g, names[at], runOf(cmd, names, args), begun),
				cobra.ShellCompDirectiveNoFileComp
		}
	}
	for flag, name := range map[string]string{"run": "RUN", "feed": "FEED", "policy": "POLICY"} {
		if cmd.Flags().Lookup(flag) == nil {
			continue
		}
		names := arguments(cmd.Use)
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string,
			begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return offer(cmd.Context(), g, name, runOf(cmd, names, args), begun), cobra.ShellCompDirectiveNoFileComp
		}) // it fails for a flag that has one already
	}
	for _, sub := range cmd.Commands() {
		Add(g, sub)
	}
}

var word = regexp.MustCompile(`[A-Z][A-Z|]*`)

// arguments are the arguments of a usage such as "show RUN ROLLOUT" as far as they have names that
// can be offered; "" for one between them that has none. A usage that opens with a flag has none.
func arguments(usage string) (names []string) {
	for _, text := range strings.Fields(usage)[min(1, len(strings.Fields(usage))):] {
		name := word.FindString(text)
		if name == "" || strings.Contains(text, "-") {
			break
		}
		switch name {
		case "OLD":
			name = "RUN"
		case "RUN", "GROUP", "ROLLOUT", "POLICY":
		default:
			name = ""
		}
		names = append(names, name)
	}
	if !slices.ContainsFunc(names, func(name string) bool { return name != "" }) {
		return nil
	}
	return names
}

// runOf is the run that other names are of: an argument before them, or --run.
func runOf(cmd *cobra.Command, names, args []string) string {
	if at := slices.Index(names, "RUN"); at >= 0 && at < len(args) {
		return args[at]
	}
	if f := cmd.Flags().Lookup("run"); f != nil {
		return f.Value.String()
	}
	return ""
}

// offer finds the names of a kind that begin so.
func offer(ctx context.Context, g *app.Global, kind, run, begun string) []cobra.Completion {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found := make(chan []cobra.Completion, 1)
	go func() { found <- names(ctx, g, kind, run) }() // to connect cannot be interrupted
	select {
	case all := <-found:
		all = slices.DeleteFunc(all, func(name cobra.Completion) bool { return !strings.HasPrefix(name, begun) })
		slices.Sort(all)
		return all[:min(len(all), most)]
	case <-ctx.Done():
		return nil
	}
}

// names asks the plane, as somebody with the least rights.
func names(ctx context.Context, g *app.Global, kind, run string) []cobra.Completion {
	quiet := *g
	quiet.Outsider, quiet.Cancel = true, nil
	quiet.Follows = true // it does not hold the directory of a plane that does not run
	p, err := plane.Connect(ctx, &quiet)
	if err != nil {
		return nil
	}
	defer p.Close()
	switch kind {
	case "RUN":
		runs, _ := p.Log.AllRuns(ctx)
		return runs
	case "POLICY":
		return entities(ctx, p, events.Catalogue, events.WeightsPublishedType)
	case "FEED":
		cfg, err := p.Log.RecordedConfig(ctx, run)
		if run == "" || err != nil {
			return nil
		}
		var feeds []cobra.Completion
		for _, f := range cfg.Feeds {
			feeds = append(feeds, f.Name)
		}
		return feeds
	}
	of := map[string]events.Type{"GROUP": events.GroupOpenedType, "ROLLOUT": events.RolloutStartedType}[kind]
	runs := []string{run}
	if run == "" {
		runs, _ = p.Log.AllRuns(ctx)
	}
	var all []cobra.Completion
	for _, one := range runs {
		all = append(all, entities(ctx, p, one, of)...)
	}
	return all
}

// entities are those of which a stream has an event of a type.
func entities(ctx context.Context, p *plane.Plane, run string, of events.Type) (list []cobra.Completion) {
	if run != events.Catalogue && !events.ValidRun(run) {
		return nil
	}
	stream, err := p.Log.JetStream().Stream(ctx, events.RunStream(run))
	if err != nil {
		return nil
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(events.Event{Run: run, Type: of, Entity: "*"}.Subject()))
	if err != nil {
		return nil
	}
	for subject := range info.State.Subjects {
		if parts := strings.Split(subject, "."); len(parts) > 4 {
			list = append(list, parts[4])
		}
	}
	return list
}
