package agents

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/sandbox/egress"
)

func newBuild(g *app.Global) *cobra.Command {
	var profile, python, scratch string
	var registries []string
	cmd := &cobra.Command{
		Use: "build [NAME[@VERSION]]", Short: "Install an agent into a layer", Args: cobra.MaximumNArgs(1),
		Long: `Build installs an agent, by the shipped profile NAME or one of your own, and puts the folder into
the store as a layer. Sandboxes mount it, read-only, at ` + agents.Folder + `. Its digest names it, with all that it holds.

The installer runs in a sandbox whose only way out is to the package registry, npm or PyPI. Packages of npm get
their own Node. Packages of PyPI get a copy of a Python of this machine, as no registry has one. When the folder
is stored, the agent is started once in an empty sandbox without a network, and the options of the profile are
compared with those that the version knows.

Without @VERSION the version that the profile was tried with is installed, and what it depends on as it was on
that day: the same command gives the same digest. Another version takes what it depends on as it is today, so a
later build may differ.`,
		Example: `  rondo agents build codex
  rondo agents build claude-code@2.1.332 --json
  rondo agents build mini-swe-agent --python /usr/bin/python3
  rondo agents build --profile my-agent.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := profileOf(args, profile)
			if err != nil {
				return err
			}
			mirrors := map[string][]string{}
			for _, text := range registries {
				name, bases, err := egress.ParseRegistry(text)
				if err != nil {
					return fmt.Errorf("--registry %w", err)
				}
				mirrors[name] = bases
			}
			connected, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer connected.Close()
			progress := app.NewProgress(g)
			defer progress.Clear()
			b := agents.Builder{Store: connected.Store, Scratch: scratch, Python: python, Registries: mirrors,
				Progress: progress.Show}
			built, err := b.Build(cmd.Context(), p)
			if err != nil {
				return err
			}
			progress.Clear()
			if built.Untried {
				fmt.Fprintf(cmd.ErrOrStderr(),
					"the profile %s was tried with %s, and not with %s: look at the requests of a first rollout\n",
					p.Name, strings.Join(p.Seen, ", "),
					cmp.Or(p.Install.Version, "what has no install.version"))
			}
			return app.Tell(cmd, g, built, "%s %s is layer %s: %d files, %d bytes\nit says: %s\n",
				p.Name, p.Install.Version, built.Digest, built.Files, built.Bytes, app.Line(built.Reported, 200))
		},
	}
	f := cmd.Flags()
	f.StringVar(&profile, "profile", "", "`FILE` with a profile of your own, in place of NAME")
	f.StringVar(&python, "python", "",
		"program of this machine that packages of PyPI get a copy of (default: the best version that is found)")
	f.StringVar(&scratch, "scratch", "", "folder with 14 GiB of room while the layer is built (default: the system's)")
	f.StringArrayVar(&registries, "registry", nil,
		"mirror in the place of a public package registry: NAME=URL[,FILES-URL...], with npm or pypi; may be repeated")
	_ = cmd.MarkFlagFilename("profile", "yaml", "yml")
	_ = cmd.MarkFlagDirname("scratch")
	_ = cmd.MarkFlagFilename("python")
	cmd.ValidArgsFunction = completeProfiles
	return cmd
}

func profileOf(args []string, file string) (agents.Profile, error) {
	switch {
	case len(args) == 1 && file != "":
		return agents.Profile{}, errors.New("give NAME or --profile, not both")
	case len(args) == 1:
		return agents.Named(args[0])
	case file != "":
		return agents.Read(file)
	}
	return agents.Profile{},
		errors.New("name an agent, or give --profile FILE: `rondo agents list` lists the shipped profiles")
}
