package cli

import (
	"cmp"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
)

// version is that of a release, which its build sets (.goreleaser.yaml).
var version string

func newVersion(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := buildOf(debug.ReadBuildInfo())
			return app.Tell(cmd, g, b, "rondo %s (%s)\n", b, b.Go)
		},
	}
}

// build is what a program says of its making.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Revision string `json:"revision,omitempty"` // of the repository, where it was built in one
	Time     string `json:"time,omitempty"`     // of the revision
	Modified bool   `json:"modified,omitempty"` // files differed from the revision
}

func buildOf(info *debug.BuildInfo, ok bool) build {
	b := build{Version: cmp.Or(version, "unknown")}
	if !ok {
		return b
	}
	b.Version, b.Go = cmp.Or(version, info.Main.Version, "unknown"), info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is the version with its revision.
func (b build) String() string {
	text := b.Version
	if b.Revision != "" {
		text += " " + b.Revision[:min(len(b.Revision), 12)]
	}
	if b.Modified {
		text += " with changes"
	}
	return text
}
