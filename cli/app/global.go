// Package app is what every command has: the global flags, exit codes, output for terminals and as
// JSON, and the access to NATS.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/events/yamltext"
	"github.com/rondo-rl/rondo/wording"
)

// Global holds the flags that every command has.
type Global struct {
	Dir    string
	NATS   string
	Store  string
	JSON   bool
	config string
	quiet  bool
	// logFormat of what is logged to standard error.
	logFormat string
	Access    NATSAccess
	// awaitStreams: the streams are made by another process.
	AwaitStreams bool
	// AwaitLog: the command waits for a log that is not there yet.
	AwaitLog bool
	// Outsider: the command asks for no more than outsiders may have, so it looks at no streams.
	Outsider bool
	// follows: the command goes on until it is interrupted, so it waits for a lost
	// connection as long as it takes.
	Follows bool
	// Reads: the command reads alone, and shows what it can while the store is out.
	Reads bool
	// Replicas is how many servers hold the streams that the command makes; 0 is as
	// many as hold the catalogue.
	Replicas int
	// Cancel ends the command's context with its cause.
	Cancel context.CancelCauseFunc
}

// fillFlags sets every flag that the command line left alone from the
// environment, then from the file.
func fillFlags(cmd *cobra.Command, g *Global) error {
	if err := CheckVariables(cmd.Root(), os.Environ()); err != nil {
		return err
	}
	file := map[string]any{}
	g.config = cmp.Or(g.config, os.Getenv("RONDO_CONFIG"))
	if g.config != "" {
		text, err := yamltext.ReadFile(g.config)
		if err != nil {
			return fmt.Errorf("read --config: %w", err)
		}
		if err := yamltext.Strict(text, &file); err != nil {
			return fmt.Errorf("read --config %s: %w", g.config, err)
		}
	}
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(variableOf(f.Name))
		ok = ok && (value != "" || f.DefValue != "") // as shells leave it out
		values, from := []any{value}, "environment"
		var setErr error
		if v, inFile := file[f.Name]; inFile && !ok {
			ok, from = true, g.config
			values, setErr = listed(f, v)
		}
		delete(file, f.Name)
		if !ok || f.Changed || err != nil {
			return
		}
		for _, v := range values {
			setErr = cmp.Or(setErr, cmd.Flags().Set(f.Name, fmt.Sprint(v)))
		}
		if setErr != nil {
			err = fmt.Errorf("--%s from the %s: %w", f.Name, from, setErr)
		}
	})
	if known := flagNames(cmd.Root()); err == nil { // one file may serve several commands
		for _, name := range SortedKeys(file) {
			if !slices.Contains(known, name) {
				err = fmt.Errorf("--config %s: no command has a flag %q%s", g.config, name,
					wording.Suggestion(name, known))
				break
			}
		}
	}
	if err == nil {
		err = checkEmpty(cmd)
	}
	if err == nil {
		err = missingFlag(cmd)
	}
	return err
}

// missingFlag names a flag that the command cannot do without.
func missingFlag(cmd *cobra.Command) error {
	name := ""
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if name == "" && !f.Changed && f.Annotations[cobra.BashCompOneRequiredFlag] != nil {
			name = f.Name
		}
	})
	if name == "" {
		return nil
	}
	return misused(cmd, fmt.Errorf("--%s is missing", name))
}

// listed are the values of a file's entry: each of a list, where the flag may be repeated.
func listed(f *pflag.Flag, v any) ([]any, error) {
	switch v := v.(type) {
	case nil, map[string]any:
		return nil, errors.New("want a text, a number, true, false or a list")
	case []any:
		if !Repeats(f) {
			return nil, errors.New("want one value, and no list")
		}
		return v, nil
	case float64:
		if f.Value.Type() == flagKinds["string"].kind { // 1.10 is 1.1 by now
			return nil, errors.New("want a text: put it into quotes")
		}
	}
	return []any{v}, nil
}

// flagNames are the names of all flags of all commands.
func flagNames(root *cobra.Command) (names []string) {
	add := func(f *pflag.Flag) { names = append(names, f.Name) }
	for _, cmd := range append(commands(root), root) {
		cmd.Flags().VisitAll(add)
		cmd.PersistentFlags().VisitAll(add)
	}
	return names
}

// New makes the program with the flags that every command has.
func New(nouns ...func(*Global) *cobra.Command) *cobra.Command {
	g := &Global{}
	root := &cobra.Command{
		Use:   "rondo",
		Short: "The rollout plane for reinforcement learning of coding agents",
		Long: `Rondo samples tasks, runs an agent's tools in sandboxes, scores rollouts, computes advantages and feeds
batches to a trainer: services that communicate only through a durable log (NATS JetStream) and objects.

Every flag can also be set by an environment variable (--nats is RONDO_NATS) or in a YAML file (--config).
A variable whose name begins with RONDO_ and that nothing reads is refused.`,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancelCause(cmd.Context())
			g.Cancel = cancel
			cmd.SetContext(ctx)
			if err := fillFlags(cmd, g); err != nil {
				return err
			}
			concealCredentials(g.Access.creds, g.Access.key)
			return setLogFormat(g.logFormat)
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&g.Dir, "dir", ".rondo", "directory of the embedded plane: log, objects, state")
	flags.StringVar(&g.NATS, "nats", "", "URL of an external NATS server (default: the plane in --dir)")
	g.Access.AddFlags(flags)
	flags.StringVar(&g.Store, "store", "", "external object store: a directory, or s3://bucket/prefix?endpoint=URL")
	flags.StringVar(&g.logFormat, "log-format", logText, "format of the log on standard error: text or json")
	flags.StringVar(&g.config, "config", "", "YAML file of flags")
	Program(g, root, nouns...)
	return root
}

// Program adds to the root of a program its commands, the flags --json and --quiet, and refusals
// of what no command knows.
func Program(g *Global, root *cobra.Command, nouns ...func(*Global) *cobra.Command) {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.PersistentFlags().BoolVar(&g.JSON, "json", false, "print JSON")
	root.PersistentFlags().BoolVarP(&g.quiet, "quiet", "q", false, "print no progress")
	for _, noun := range nouns {
		root.AddCommand(noun(g))
	}
	root.SetFlagErrorFunc(misused)
	root.InitDefaultCompletionCmd()
	nameHelp(root)
	refuseTopics(root)
	refuseUnknown(root)
	usage := strings.Replace(root.UsageTemplate(), "{{if .Runnable}}",
		`{{if and .Runnable (not (index .Annotations "`+groups+`"))}}`, 1)
	root.SetUsageTemplate(usage + `{{with index .Annotations "` + settings + `"}}
{{.}}
{{end}}`)
	wordFlags(root)
}

// nameHelp lets a mistake in a command's arguments name the command's help.
func nameHelp(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				if !cmd.HasSubCommands() {
					err = countError(cmd.Use, args, err)
				}
				return misused(cmd, err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		nameHelp(sub)
	}
}

// countError names the argument that a usage such as "show RUN [ROLLOUT]" has and the user has not
// given, or the first that is too many.
func countError(use string, args []string, err error) error {
	most := 0
	for _, word := range strings.Fields(use)[1:] {
		name := strings.Trim(word, "[].…")
		switch {
		case strings.HasPrefix(word, "-"):
			return err
		case strings.ToLower(name) == name || strings.ToUpper(name) != name:
			continue
		case most >= len(args) && !strings.HasPrefix(word, "["):
			return fmt.Errorf("%s is missing", name)
		}
		most++
	}
	if most < len(args) && (strings.HasPrefix(err.Error(), "accepts ") ||
		strings.HasPrefix(err.Error(), "unknown command ")) {
		return fmt.Errorf("%.80q is one argument too many", args[most])
	}
	return err
}

// settings annotates a command with what its help says of the flags that it does not show.
const settings = "settings"

// ShowFlags lets the help of a command that runs services show the named flags alone.
func ShowFlags(cmd *cobra.Command, names ...string) {
	hidden := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(names, f.Name) {
			f.Hidden = true
			hidden++
		}
	})
	cmd.Annotations = map[string]string{settings: fmt.Sprintf("%d more flags are settings of the services: `rondo config init` writes them into a file, each with what it means.", hidden)}
}

// groups annotates a command that does nothing but group others: its usage is
// that of its members alone.
const groups = "groups"

// refuseUnknown lets a command that only groups others refuse a name that is none of theirs. It
// shows its help without one.
func refuseUnknown(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		refuseUnknown(sub)
	}
	if !cmd.HasSubCommands() || cmd.Runnable() {
		return
	}
	cmd.Annotations = map[string]string{groups: "true"}
	cmd.Args = cobra.ArbitraryArgs // and no error of the library's, in lines of its own
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			var known []string
			for _, sub := range cmd.Commands() {
				known = append(known, sub.Name())
			}
			return misused(cmd, fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(),
				wording.Suggestion(args[0], known)))
		}
		return cmd.Help()
	}
}

// refuseTopics lets `help` refuse a name that is no command's.
func refuseTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Args = func(_ *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q for %q", rest[0], found.CommandPath())
			}
			if err != nil {
				return misused(root, err)
			}
			return nil
		}
	}
}

func misused(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath())
}
