// Package tools is the command that lists the tools of a run.
package tools

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// toolsOptions are the flags of `rondo tools`.
type toolsOptions struct {
	set         string
	file, run   string
	mcp, openai bool
}

// New makes the command `rondo tools`.
func New(g *app.Global) *cobra.Command {
	var o toolsOptions
	cmd := &cobra.Command{Use: "tools", Short: "The tools that agents are offered", Args: cobra.NoArgs}
	list := &cobra.Command{
		Use: "list", Short: "List the tools of a set, of a run file or of a run", Args: cobra.NoArgs,
		Long: `List shows the tools of a set, or those that a run file or a run chooses, in the order in which a prompt has them. What servers
offer whose tools the file does not name is known when the run is open. With --json it prints
their definitions: as the table has them, as chat endpoints take them (--openai), or as the Model Context Protocol lists them (--mcp).`,
		Example: `  rondo tools list
  rondo tools list --set basic
  rondo tools list --file run.yaml --openai --json
  rondo tools list --run first
  rondo tools list --mcp --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := o.definitions(cmd, g)
			if err != nil {
				return err
			}
			return app.Show(cmd, g, o.forms(all), func(w io.Writer) error { return listTools(w, all) })
		},
	}
	show := &cobra.Command{
		Use: "show TOOL", Short: "Show one tool with the schema of its arguments", Args: cobra.ExactArgs(1),
		Example: `  rondo tools show grep
  rondo tools show read_lints --mcp --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := o.definitions(cmd, g)
			if err != nil {
				return err
			}
			at := slices.IndexFunc(all, func(d tools.Definition) bool { return d.Name == args[0] })
			if at < 0 {
				return fmt.Errorf("there is no tool %q: `rondo tools list` lists the tools", args[0])
			}
			return app.Show(cmd, g, o.forms(all[at : at+1])[0], func(w io.Writer) error { return showTool(w, all[at]) })
		},
	}
	for _, c := range []*cobra.Command{list, show} {
		c.Flags().StringVar(&o.set, "set", toolset.Composer, "set of tools: "+toolset.Basic+" or "+toolset.Composer)
		c.Flags().StringVar(&o.file, "file", "", "run file (YAML) whose tools to take")
		c.Flags().StringVar(&o.run, "run", "", "run whose tools to take")
		c.Flags().BoolVar(&o.mcp, "mcp", false, "with --json, in the form of the Model Context Protocol")
		c.Flags().BoolVar(&o.openai, "openai", false, "with --json, in the form of OpenAI's chat completions")
		c.MarkFlagsMutuallyExclusive("mcp", "openai")
		c.MarkFlagsMutuallyExclusive("set", "file", "run")
	}
	cmd.AddCommand(list, show)
	return cmd
}

// definitions are those of the run or the run file, or all of the set.
func (o *toolsOptions) definitions(cmd *cobra.Command, g *app.Global) ([]tools.Definition, error) {
	cfg, err := o.config(cmd, g)
	if err != nil {
		return nil, err
	}
	if err := cfg.CheckTools(); err != nil {
		return nil, err
	}
	set, err := tools.NewSet(cfg.ToolSettings())
	if err != nil {
		return nil, err
	}
	return set.Definitions(), nil
}

func (o *toolsOptions) config(cmd *cobra.Command, g *app.Global) (runfile.RunConfig, error) {
	switch {
	case o.run != "":
		p, err := plane.ConnectRun(cmd.Context(), g, o.run)
		if err != nil {
			return runfile.RunConfig{}, err
		}
		defer p.Close()
		return p.Log.RecordedConfig(cmd.Context(), o.run)
	case o.file != "":
		f, err := opening.ReadRunFile(o.file)
		if err != nil {
			return runfile.RunConfig{}, err
		}
		f.Tools.Servers = slices.DeleteFunc(f.Tools.Servers, func(s toolset.Server) bool {
			if len(s.Tools) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "the tools of server %s are listed when the run is opened\n",
					app.Clean(s.Name))
			}
			return len(s.Tools) == 0
		})
		return f.RunConfig, nil
	}
	return runfile.RunConfig{Features: []string{runfile.FeatureCodebaseSearch}, Tools: toolset.Tooling{Set: o.set}}, nil
}

// toolEntry is a tool as --json prints it.
type toolEntry struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	ReadOnly    bool            `json:"read_only"`
	Idempotent  bool            `json:"idempotent"`
	Destructive bool            `json:"destructive"`
	Cacheable   bool            `json:"cacheable"`
	AnswerBytes int             `json:"answer_bytes"`
	Items       int             `json:"items,omitempty"`
	Seconds     float64         `json:"seconds,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

func (o *toolsOptions) forms(all []tools.Definition) []any {
	forms := make([]any, len(all))
	for i, d := range all {
		switch {
		case o.mcp:
			forms[i] = d.MCP()
		case o.openai:
			forms[i] = d.OpenAI()
		default:
			forms[i] = toolEntry{
				Name: d.Name, Description: d.Description, ReadOnly: d.ReadOnly, Idempotent: d.ReadOnly ||
					d.Idempotent, Destructive: d.Destructive,
				Cacheable: d.Follows != tools.FromSandbox, AnswerBytes: d.Limits.AnswerBytes, Items: d.Limits.Items,
				Seconds:    d.Limits.Time.Seconds(),
				Parameters: d.Parameters,
			}
		}
	}
	return forms
}

func listTools(w io.Writer, all []tools.Definition) error {
	t := app.NewColumns(w)
	fmt.Fprintln(t, "TOOL\tCHANGES\tCACHED\tDOES")
	for _, d := range all {
		changes, cached := "yes", "no"
		if d.ReadOnly {
			changes = "no"
		}
		if d.Follows != tools.FromSandbox {
			cached = "yes"
		}
		line, _, _ := strings.Cut(app.Clean(d.Description), "\n")
		first, _, _ := strings.Cut(line, ". ")
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", d.Name, changes, cached, strings.TrimSuffix(first, "."))
	}
	return t.Flush()
}

func showTool(w io.Writer, d tools.Definition) error {
	var schema any
	if err := json.Unmarshal(d.Parameters, &schema); err != nil {
		return err
	}
	parameters, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n\n%s\n\n%s\n", d.Name, app.Clean(d.Description), parameters)
	return err
}
