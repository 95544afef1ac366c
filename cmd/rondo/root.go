package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// global holds the flags that every command has.
type global struct {
	dir    string
	nats   string
	store  string
	json   bool
	config string
	quiet  bool
	access natsAccess
	// awaitStreams: the streams are made by another process.
	awaitStreams bool
}

func newRoot() *cobra.Command {
	g := &global{}
	root := &cobra.Command{
		Use:   "rondo",
		Short: "The rollout plane for reinforcement learning of coding agents",
		Long: `Rondo samples tasks, runs an agent's tools in sandboxes, scores rollouts, computes advantages and feeds
batches to a trainer: services that communicate only through a durable log (NATS JetStream) and objects.

Every flag can also be set by an environment variable (--nats is RONDO_NATS) or in a YAML file (--config).`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return fillFlags(cmd, g) },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&g.dir, "dir", ".rondo", "directory of the embedded plane: log, objects, state")
	flags.StringVar(&g.nats, "nats", "", "URL of an external NATS server (default: the plane in --dir)")
	g.access.addFlags(flags)
	flags.StringVar(&g.store, "store", "", "external object store: a directory, or s3://bucket/prefix?endpoint=URL")
	flags.BoolVar(&g.json, "json", false, "print JSON")
	flags.BoolVarP(&g.quiet, "quiet", "q", false, "print no progress")
	flags.StringVar(&g.config, "config", "", "YAML file of flags")
	root.AddCommand(
		newDemo(g), newUp(g), newService(g), newRun(g), newEvents(g), newTrajectories(g),
		newTasks(g), newTools(g), newAudit(g), newExplain(g), newFork(g), newInvalidate(g), newReplay(g), newDiff(g), newArchive(g), newGC(g), newIndex(g), newEval(g), newAdvantage(g),
		newBench(g), newSandbox(g), newAuth(g), newDoctor(g), newVersion(g),
	)
	return root
}

// fillFlags sets every flag that the command line left alone from the environment, then from the file.
func fillFlags(cmd *cobra.Command, g *global) error {
	file := map[string]any{}
	if g.config == "" {
		g.config = os.Getenv("RONDO_CONFIG")
	}
	if g.config != "" {
		text, err := os.ReadFile(g.config)
		if err != nil {
			return fmt.Errorf("read --config: %w", err)
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			return fmt.Errorf("read --config %s: %w", g.config, err)
		}
	}
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv("RONDO_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
		from := "environment"
		if v, inFile := file[f.Name]; inFile && !ok {
			value, ok, from = fmt.Sprint(v), true, g.config
		}
		delete(file, f.Name)
		if ok && !f.Changed && err == nil {
			if setErr := cmd.Flags().Set(f.Name, value); setErr != nil {
				err = fmt.Errorf("--%s from the %s: %w", f.Name, from, setErr)
			}
		}
	})
	for name := range file {
		if err == nil && !knownFlag(cmd.Root(), name) {
			err = fmt.Errorf("--config %s: no command has a flag %q", g.config, name)
		}
	}
	return err
}

// knownFlag reports whether any command has the flag: one file may serve several commands.
func knownFlag(cmd *cobra.Command, name string) bool {
	if cmd.Flags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil {
		return true
	}
	for _, sub := range cmd.Commands() {
		if knownFlag(sub, name) {
			return true
		}
	}
	return false
}
