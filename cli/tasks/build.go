package tasks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
)

// builtImage is an image of a task that there is now.
type builtImage struct {
	Task  string `json:"task"`
	Image string `json:"image"`
	Of    string `json:"of"`   // the file that asks for it
	Made  bool   `json:"made"` // false: it was there
}

func newTasksBuild(g *app.Global) *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "build DIR",
		Short: "Build the container images that tasks describe, with this machine's Docker engine",
		Long: `Build the container images that tasks describe, with this machine's Docker engine. A task needs one

  - if its environment/Dockerfile does more than to copy files (RUN, several stages, an image that may hold the workspace),
    or if [metadata.rondo] image = true asks for it;
  - for its tests, if the verifier's environment is separate and tests/Dockerfile does more than to copy the tests;
  - for its tests, if tests/test.sh or a script beside it installs programs with apt, apk or uv, or downloads some. A verifier
    has no network, so test.sh runs once while its image is built, and what it installed is kept.

What these files run has the network and the rights that the engine gives to builds, and no sandbox: build packs that you
trust. An image is named by the files that it is made of, and is built once. Rollouts run in sandboxes as ever; the engine
is asked for the image's files alone. Take an image to other machines with "docker save" and "docker load", which keep its digest.`,
		Example: `  rondo tasks build ./my-tasks
  rondo tasks build ./my-tasks --task hello --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, loadErr := opening.LoadTasks(args[0])
			if len(list) == 0 {
				return loadErr
			}
			built := []builtImage{}
			for _, t := range list {
				if len(only) > 0 && !slices.Contains(only, t.Name) {
					continue
				}
				for _, b := range t.Builds {
					app.NewProgress(g).Show("building the image of %s for task %s", b.Field, t.Name)
					begin := time.Now()
					made, err := b.Make(cmd.Context())
					if err != nil {
						return errors.Join(fmt.Errorf("task %s: %w", t.Name, err), loadErr)
					}
					built = append(built, builtImage{t.Name, b.Image, b.Field, made})
					if !g.JSON {
						printBuilt(cmd, built[len(built)-1], time.Since(begin))
					}
				}
			}
			if g.JSON {
				return errors.Join(app.PrintJSON(cmd.OutOrStdout(), built), loadErr)
			}
			if len(built) == 0 && loadErr == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "no task needs an image of its own")
			}
			return loadErr
		},
	}
	cmd.Flags().StringSliceVar(&only, "task", nil, "build the images of these alone")
	return cmd
}

func printBuilt(cmd *cobra.Command, b builtImage, took time.Duration) {
	how := "is there"
	if b.Made {
		how = fmt.Sprintf("built in %.0f s", took.Seconds())
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%-24s %-24s %s (%s)\n", b.Task, b.Of,
		b.Image[:min(len(b.Image), len("rondo-task:")+12)], strings.TrimSpace(how))
}
