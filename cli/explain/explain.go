// Package explain has the commands that tell what became of rollouts and groups, and follow a
// batch down to its tool calls.
package explain

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// New makes the command `rondo explain`.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "explain",
		Short: "Tell what became of a rollout or a group, and where a batch comes from"}
	cmd.AddCommand(newExplainRollout(g), newExplainGroup(g), newExplainBatch(g))
	return cmd
}

func newExplainBatch(g *app.Global) *cobra.Command {
	var feed string
	cmd := &cobra.Command{
		Use:   "batch RUN STEP",
		Short: "Follow a batch down to groups, rollouts, turns, tool calls, snapshot, verifier and weights",
		Long: `Explain batch shows the sources of a training batch: its files; its groups, each with the digests of
its task and of the snapshot that its sandboxes started from; each member with its reward, its advantage and, if it is
not trained on, the reason; the verifier's result; the turns with their tool calls and exit codes; and
the policy version of every turn with the digest of its weights. It reads only the log.`,
		Example: `  rondo explain batch demo-1 3
  rondo explain batch demo-1 3 --feed trainer --json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			step, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || step < 1 {
				return fmt.Errorf("step %q: give the number of a batch, counted from 1", args[1])
			}
			p, err := plane.ConnectRun(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			x, err := explainBatch(cmd.Context(), p, args[0], feed, step)
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), x)
			}
			printBatch(cmd.OutOrStdout(), x)
			return nil
		},
	}
	cmd.Flags().StringVar(&feed, "feed", "", "feed of the batch (default: the run's first)")
	return cmd
}

// batchStory is a batch with everything that it was made of.
type batchStory struct {
	Run      string    `json:"run"`
	Feed     string    `json:"feed"`
	Sequence uint64    `json:"sequence"` // of batch.ready on the run's stream
	State    string    `json:"state"`    // ready or consumed
	Batch    batchHead `json:"batch"`
	// Advantage is how the run turns rewards into advantages.
	Advantage runfile.Advantage `json:"advantage"`
	Groups    []groupStory      `json:"groups"`
	Weights   []weightsStory    `json:"weights"` // of every policy version that took part
}

type batchHead struct {
	Step       int64         `json:"step"`
	Samples    int           `json:"samples"`
	Tokens     int64         `json:"tokens"`
	Sampled    int64         `json:"sampled"`
	RewardMean float64       `json:"reward_mean"`
	MinVersion int64         `json:"min_version"`
	Staleness  int64         `json:"staleness"`
	Files      []storage.Ref `json:"files"`
}

type groupStory struct {
	Group      string        `json:"group"`
	Task       string        `json:"task"`
	TaskDigest string        `json:"task_digest"`
	Snapshot   *storage.Ref  `json:"snapshot,omitempty"`
	Tests      *storage.Ref  `json:"tests,omitempty"`
	Estimator  string        `json:"estimator"`
	RewardMean float64       `json:"reward_mean"`
	Members    []memberStory `json:"members"`
}

// weightsStory names the manifest of a policy version; a run begins with version 0,
// which was never published.
type weightsStory struct {
	Version  int64        `json:"version"`
	Manifest *storage.Ref `json:"manifest,omitempty"`
}

func explainBatch(ctx context.Context, p *plane.Plane, run, feed string, step int64) (batchStory, error) {
	x := batchStory{Run: run, Groups: []groupStory{}, Weights: []weightsStory{}}
	cfg, err := p.Log.RecordedConfig(ctx, run)
	if err != nil {
		return x, err
	}
	if len(cfg.Feeds) == 0 {
		return x, fmt.Errorf("run %s is an evaluation without feeds: it has no batches", run)
	}
	if x.Feed = feed; feed == "" {
		x.Feed = cfg.Feeds[0].Name
	}
	if err := p.MustFeed(ctx, run, x.Feed); err != nil {
		return x, err
	}
	s, err := readScene(ctx, p, run, x.Feed, step)
	if err != nil {
		return x, err
	}
	if err := s.publishedBefore(ctx, p, cfg.Policy); err != nil {
		return x, err
	}
	x.tell(cfg, s)
	versions := map[int64]bool{}
	for _, id := range s.Groups {
		group, err := s.Group(cfg, id, versions)
		if err != nil {
			return x, err
		}
		x.Groups = append(x.Groups, group)
	}
	x.normalise(cfg)
	for v := range versions {
		x.Weights = append(x.Weights, s.story(v))
	}
	slices.SortFunc(x.Weights, func(a, b weightsStory) int { return int(a.Version - b.Version) })
	return x, nil
}

func (x *batchStory) tell(cfg runfile.RunConfig, s *scene) {
	x.Advantage, x.Sequence, x.State = cfg.Advantage, s.Seq, "ready"
	if s.Step <= s.run.Consumed(x.Feed) {
		x.State = "consumed"
	}
	b := s.Batch
	x.Batch = batchHead{
		Step: b.Step, Samples: b.Samples, Tokens: b.Tokens, Sampled: b.Sampled, RewardMean: b.RewardMean,
		MinVersion: b.MinVersion, Staleness: b.Staleness, Files: b.Files,
	}
}
