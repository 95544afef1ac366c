package index

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/sandbox/tools"
)

// searchPair is a question of an agent with what it did next: what an embedder can be trained on.
type searchPair struct {
	Run     string `json:"run"`
	Rollout string `json:"rollout"`
	Task    string `json:"task"`
	Turn    int    `json:"turn"`
	Query   string `json:"query"`
	// Directory is where the agent looked, "" for everywhere.
	Directory string      `json:"directory,omitempty"`
	Shown     []shownPart `json:"shown"`
	// Opened and Edited are files of later calls, in the order in which they were met first.
	Opened []string `json:"opened"`
	Edited []string `json:"edited"`
	// Reward is the rollout's, null where it failed.
	Reward *float64 `json:"reward"`
}

// shownPart is a part of a file that answered the question.
type shownPart struct {
	Path      string `json:"path"`
	FirstLine int    `json:"first_line"`
	LastLine  int    `json:"last_line"`
}

func newIndexPairs(g *app.Global) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "pairs RUN...", Short: "Export the questions of agents with the files that they opened and edited later",
		Args: cobra.MinimumNArgs(1),
		Long: `Pairs writes each codebase_search call of finished rollouts as a line of JSON: the question, the results, the files that the
rollout opened and edited afterwards, and the rollout's reward. An embedder can be trained on these lines.`,
		Example: `  rondo index pairs demo-1 > pairs.jsonl
  rondo index pairs demo-1 demo-2 --out pairs.jsonl`,
		RunE: func(cmd *cobra.Command, runs []string) (err error) {
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			for _, run := range runs {
				if err := p.MustRun(cmd.Context(), run); err != nil {
					return err
				}
			}
			w := cmd.OutOrStdout()
			if out != "" {
				f, createErr := os.Create(out)
				if createErr != nil {
					return createErr
				}
				defer func() {
					if closeErr := f.Close(); err == nil {
						err = closeErr
					}
				}()
				w = f
			}
			n, err := writePairs(cmd.Context(), p.Log, runs, w)
			if err != nil || out == "" {
				return err
			}
			return app.Tell(cmd, g, map[string]any{"written": n, "out": out}, "%d questions written to %s\n", n, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file of the lines (default: standard output)")
	return cmd
}

func writePairs(ctx context.Context, log *eventlog.Log, runs []string, w io.Writer) (n int, err error) {
	buffered := bufio.NewWriter(w)
	lines := json.NewEncoder(buffered)
	for _, run := range runs {
		cfg, err := log.RecordedConfig(ctx, run)
		if err != nil {
			return n, err
		}
		for ended, err := range log.Rollouts(ctx, run) {
			if err != nil {
				return n, err
			}
			task, err := ended.Task(cfg)
			if err != nil {
				return n, err
			}
			for _, pair := range pairsOf(&ended.Rollout, task.Workdir) {
				if err := lines.Encode(pair); err != nil {
					return n, err
				}
				n++
			}
		}
	}
	return n, buffered.Flush()
}

// calledWith is what pairs want to know of a call's arguments. Models write anything, so
// all of it may be missing.
type calledWith struct {
	Query             string   `json:"query"`
	TargetDirectories []string `json:"target_directories"`
	TargetFile        string   `json:"target_file"`
	FilePath          string   `json:"file_path"`
}

// pairsOf finds the questions of a rollout that were answered.
func pairsOf(r *events.Rollout, workdir string) (pairs []searchPair) {
	for _, turn := range r.Turns {
		for i, call := range turn.ToolCalls {
			var a calledWith
			if call.Name != tools.SearchTool || json.Unmarshal([]byte(call.Arguments), &a) != nil ||
				strings.TrimSpace(a.Query) == "" {
				continue
			}
			results := r.Tools.Answer(turn.Turn).Results
			if i >= len(results) || results[i].Error {
				continue
			}
			pair := searchPair{Run: r.Run, Rollout: r.ID, Task: r.Started.Task, Turn: turn.Turn, Query: a.Query,
				Shown: partsIn(results[i].Content), Opened: []string{}, Edited: []string{}}
			if len(a.TargetDirectories) > 0 {
				pair.Directory = a.TargetDirectories[0]
			}
			if r.Scored != nil {
				pair.Reward = &r.Scored.Reward
			}
			pair.follow(r, turn.Turn, workdir)
			pairs = append(pairs, pair)
		}
	}
	return pairs
}

// follow finds the files of the calls of later turns that succeeded.
func (p *searchPair) follow(r *events.Rollout, after int, workdir string) {
	for _, turn := range r.Turns {
		results := r.Tools.Answer(turn.Turn).Results
		if turn.Turn <= after {
			continue
		}
		for i, call := range turn.ToolCalls {
			var a calledWith
			if json.Unmarshal([]byte(call.Arguments), &a) != nil || i >= len(results) || results[i].Error {
				continue
			}
			switch call.Name {
			case "read_file":
				p.Opened = met(p.Opened, a.TargetFile, workdir)
			case "search_replace", "write":
				p.Edited = met(p.Edited, a.FilePath, workdir)
			}
		}
	}
}

// met adds a file, by its path in the workspace, unless it is there.
func met(files []string, name, workdir string) []string {
	name = path.Clean(name)
	name = strings.TrimPrefix(name, workdir+"/")
	if slices.Contains(files, name) {
		return files
	}
	return append(files, name)
}

// shownHead is the line above a part; the lines of the part itself begin with a number and a bar.
var shownHead = regexp.MustCompile(`(?m)^([^|\n]+):(\d+)-(\d+)(?: .*)?$`)

func partsIn(answer string) []shownPart {
	parts := []shownPart{}
	for _, m := range shownHead.FindAllStringSubmatch(answer, -1) {
		var p shownPart
		if _, err := fmt.Sscan(m[2]+" "+m[3], &p.FirstLine, &p.LastLine); err == nil {
			p.Path = m[1]
			parts = append(parts, p)
		}
	}
	return parts
}
