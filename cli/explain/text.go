package explain

import (
	"fmt"
	"io"
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/storage"
)

// printBatch prints a batch as a tree.
func printBatch(w io.Writer, x batchStory) {
	b := x.Batch
	fmt.Fprintf(w, "batch %d of feed %s in run %s, %s, at sequence %d\n", b.Step, x.Feed, x.Run, x.State, x.Sequence)
	fmt.Fprintf(w, "%d samples, %d tokens (%d sampled), mean reward %.3g, oldest policy version %d (%d behind)\n",
		b.Samples, b.Tokens, b.Sampled, b.RewardMean, b.MinVersion, b.Staleness)
	fmt.Fprintln(w, x.summary())
	fmt.Fprintf(w, "advantage: %s %s\n", x.Advantage.Estimator, app.Parameters(x.Advantage.Params))
	for _, f := range b.Files {
		fmt.Fprintf(w, "file %s  sha256 %s  %d bytes\n", f.Key, short(f.SHA256), f.Size)
	}
	for _, v := range x.Weights {
		if v.Manifest == nil {
			fmt.Fprintf(w, "policy version %d: the run began with it\n", v.Version)
			continue
		}
		fmt.Fprintf(w, "policy version %d: weights %s  %s\n", v.Version, short(v.Manifest.SHA256), v.Manifest.Key)
	}
	for _, g := range x.Groups {
		printGroup(w, g)
	}
}

// summary says in a sentence how many rollouts of the batch's groups are trained
// on, and why others are not.
func (x batchStory) summary() string {
	trained, all, left := 0, 0, map[string]int{}
	for _, g := range x.Groups {
		for _, m := range g.Members {
			all++
			if m.Trained {
				trained++
				continue
			}
			left[m.Outcome+": "+m.Reason]++
		}
	}
	text := fmt.Sprintf("It trains on %d of the %s in %s", trained, app.Plural(all, "rollout"),
		app.Plural(len(x.Groups), "group"))
	for i, why := range app.SortedKeys(left) {
		if i == 0 {
			text += "; it leaves out "
		} else {
			text += ", "
		}
		text += fmt.Sprintf("%d (%s)", left[why], app.Line(why, 80))
	}
	return text + "."
}

func printGroup(w io.Writer, g groupStory) {
	fmt.Fprintf(w, "\n%s  task %s %s  snapshot %s  tests %s  mean reward %.3g\n", g.Group, app.Line(g.Task, 80),
		short(g.TaskDigest), digest(g.Snapshot), digest(g.Tests), g.RewardMean)
	for _, m := range g.Members {
		fmt.Fprintf(w, "  %s  %s", m.Rollout, m.Outcome)
		if m.Reason != "" {
			fmt.Fprintf(w, " (%s)", app.Line(m.Reason, 80))
		}
		switch {
		case !m.Compared:
			fmt.Fprint(w, "  no reward")
		case m.Shaped != m.Reward:
			fmt.Fprintf(w, "  reward %.4g, shaped %.4g, advantage %.4g", m.Reward, m.Shaped, m.Advantage)
		default:
			fmt.Fprintf(w, "  reward %.4g, advantage %.4g", m.Reward, m.Advantage)
		}
		if m.BatchAdvantage != nil {
			fmt.Fprintf(w, ", in the batch %.4g", *m.BatchAdvantage)
		}
		fmt.Fprintf(w, "  dispatched at version %d  %d tokens (%d sampled)  %s\n", m.PolicyVersion, m.Tokens, m.Sampled,
			app.Line(m.StopReason, 64))
		if m.Invalidated {
			fmt.Fprintln(w, "    it is invalidated")
		}
		if m.Trajectory != nil {
			fmt.Fprintf(w, "    trajectory %s\n", m.Trajectory.Key)
		}
		printTurns(w, m)
		if v := m.Verdict; v != nil {
			fmt.Fprintf(w, "    verifier: reward %.4g, exit code %d, task %s, log %s\n", v.Reward, v.ExitCode,
				short(v.TaskDigest), digest(v.Log))
			if v.Forfeit != nil {
				fmt.Fprintf(w, "    forfeited: %s: %s\n", v.Forfeit.Class, app.Line(v.Forfeit.Message, 200))
			}
			for _, flag := range v.Flags {
				fmt.Fprintf(w, "    flag: %s\n", app.Line(flag, 300))
			}
		}
		if f := m.Failure; f != nil {
			fmt.Fprintf(w, "    failed: %s, %s: %s\n", f.Stage, f.Class, app.Line(f.Message, 200))
		}
	}
}

func printTurns(w io.Writer, m memberStory) {
	for _, t := range m.Turns {
		version := fmt.Sprintf("version %d", t.PolicyVersion)
		if n := len(t.VersionSpans); n > 0 {
			version = fmt.Sprintf("versions %d to %d in %d spans", t.VersionSpans[0].Version,
				t.VersionSpans[n-1].Version, n)
		}
		fmt.Fprintf(w, "    turn %d  %s  %d sampled  %s", t.Turn, version, t.Sampled, app.Line(t.FinishReason, 20))
		if t.FinishWord != "" {
			fmt.Fprintf(w, " (%s)", app.Line(t.FinishWord, 60))
		}
		if len(t.Lacks) > 0 {
			fmt.Fprintf(w, "  lacks %s", app.Line(strings.Join(t.Lacks, ", "), 120))
		}
		if t.Summary {
			fmt.Fprint(w, "  summary")
		}
		if t.SegmentCause != "" {
			fmt.Fprintf(w, "  begins a sample (%s)", t.SegmentCause)
		}
		if t.Runner != "" {
			fmt.Fprintf(w, "  on %s (%s)", t.Runner, t.Isolation)
		}
		fmt.Fprintln(w)
		for _, c := range t.ToolCalls {
			fmt.Fprintf(w, "      %s %s  %s\n", app.Line(c.Name, 40), app.Line(c.Arguments, 100), c.ending())
		}
	}
}

// ending is how a call ended, "" for well.
func (c callStory) ending() string {
	switch {
	case c.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *c.ExitCode)
	case c.Error:
		return "an error"
	}
	return ""
}

// short is the beginning of a digest, enough to tell and to search by.
func short(digest string) string {
	digest = strings.TrimPrefix(digest, "sha256:")
	return digest[:min(12, len(digest))]
}

func digest(ref *storage.Ref) string {
	if ref == nil {
		return "none"
	}
	return short(ref.SHA256)
}
