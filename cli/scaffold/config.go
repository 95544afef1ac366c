package scaffold

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/cli/app"
)

const configFile = "rondo.yaml"

// NewConfig makes the command `rondo config`.
func NewConfig(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Write a file of settings"}
	cmd.AddCommand(&cobra.Command{
		Use: "init [FILE]", Short: "Write all settings of the services into a file, with comments",
		Args: cobra.MaximumNArgs(1),
		Long: `Init writes every flag of "rondo up" and "rondo service" into FILE (` + configFile + `), each with what it means and
with its default, as a comment. Take away the # of those that you change. Commands read the file that
--config, or the variable RONDO_CONFIG, names. It overwrites nothing.`,
		Example: "  rondo config init\n  rondo up --config " + configFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := configFile
			if len(args) > 0 {
				name = args[0]
			}
			content, err := settings(cmd.Root())
			if err != nil {
				return err
			}
			dir, base := filepath.Split(name)
			return write(cmd, g, cmp.Or(dir, "."), []file{{base, content, 0o644}},
				"rondo up --config "+name+" reads it")
		},
	})
	return cmd
}

// settings are the flags of the commands that run services, as YAML that is a comment.
func settings(root *cobra.Command) ([]byte, error) {
	all, notes := pflag.NewFlagSet("", pflag.ContinueOnError), map[string]string{}
	for _, name := range []string{"up", "service"} {
		cmd, _, err := root.Find([]string{name})
		if err != nil {
			return nil, err
		}
		cmd.InheritedFlags() // joins those of the root to the command's own
		own := cmd.Flags()
		own.VisitAll(func(f *pflag.Flag) {
			known := all.Lookup(f.Name)
			switch {
			case known == nil:
				notes[f.Name] = fmt.Sprintf(" (`rondo %s` alone)", name)
			case known.DefValue != f.DefValue:
				notes[f.Name] = fmt.Sprintf(" (of `rondo %s`: %s)", name, cmp.Or(f.DefValue, "none"))
			default:
				delete(notes, f.Name)
			}
		})
		all.AddFlagSet(own)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "# Settings of `rondo up` and `rondo service`: flags with their defaults. Other commands read those that\n"+
		"# they have. A flag on the command line goes before its variable (--nats is RONDO_NATS), and that before\n"+
		"# this file.\n")
	var failed error
	all.VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "help", "config", "json", "quiet":
			return
		}
		value, err := yaml.Marshal(map[string]any{f.Name: valueOf(f)})
		failed = cmp.Or(failed, err)
		_, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(&text, "\n%s# %s", comment(usage+notes[f.Name]), value)
	})
	return text.Bytes(), failed
}

// valueOf is the default of a flag as YAML has it.
func valueOf(f *pflag.Flag) any {
	var value any
	switch kind := f.Value.Type(); {
	case app.Repeats(f):
		return []string{}
	case kind == "integer" || kind == "number" || kind == "bool":
		if yaml.Unmarshal([]byte(f.DefValue), &value) == nil {
			return value
		}
	}
	return f.DefValue
}

// comment writes a sentence as comments of at most so many columns.
func comment(sentence string) string {
	const columns = 100
	var text strings.Builder
	at := 0
	for _, word := range strings.Fields(sentence) {
		if at > 0 && at+1+len(word) > columns {
			text.WriteString("\n")
			at = 0
		}
		if at == 0 {
			text.WriteString("#")
			at = 1
		}
		text.WriteString(" " + word)
		at += 1 + len(word)
	}
	return text.String() + "\n"
}
