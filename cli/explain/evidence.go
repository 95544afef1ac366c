package explain

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/export/episode"
	"github.com/rondo-rl/rondo/sandbox/difference"
)

// Evidence is what a reward follows from, as the log and the store have it.
type Evidence struct {
	// Tests are those that decide the reward, of each stage or of the whole, where the
	// task's grading names them.
	Tests []events.StageTests `json:"tests,omitempty"`
	// VerifierOutput is what the verifier printed, and AgentOutput the run's own agent, at most the
	// last 64 KiB of each.
	VerifierOutput string `json:"verifier_output,omitempty"`
	AgentOutput    string `json:"agent_output,omitempty"`
	// Changes are the files of the workspace that the rollout has left
	// otherwise than it found them.
	Changes     []changedFile `json:"changes,omitempty"`
	MoreChanges int           `json:"more_changes,omitempty"` // files beyond those
	// Calls are the last ones.
	Calls []lastCall `json:"calls,omitempty"`
	// Siblings are the other rollouts of the group.
	Siblings []sibling `json:"siblings,omitempty"`
	// Unread says what of it cannot be read, and why.
	Unread []string `json:"unread,omitempty"`

	verifier string // how it ended
}

// changedFile is what a rollout made of a file.
type changedFile struct {
	Name  string   `json:"name"`
	What  string   `json:"what"` // added, changed or deleted
	Note  string   `json:"note,omitempty"`
	Lines []string `json:"lines,omitempty"` // as a unified diff has them
	More  int      `json:"more,omitempty"`  // lines beyond those
}

// lastCall is a call near the end of an episode.
type lastCall struct {
	Turn int `json:"turn"`
	callStory
	Output string `json:"output,omitempty"` // its last lines
}

// sibling is another rollout of the group.
type sibling struct {
	Rollout string   `json:"rollout"`
	Reward  *float64 `json:"reward,omitempty"`
	Outcome string   `json:"outcome"` // scored, failed, or in flight
	Turns   int      `json:"turns"`
	// DiffersAt is the first turn in which the two said or called something else; nil for none.
	DiffersAt *int `json:"differs_at,omitempty"`
}

const (
	printedLines  = 40 // of an output
	mostCalls     = 5
	outputOfACall = 4 // lines
)

// comparedChanges bounds the changes.
var comparedChanges = difference.Bounds{Files: 20, Bytes: 256 << 10, Lines: 200}

// evidence gathers that of one rollout. What cannot be read is said to be.
func (s *source) evidence(ctx context.Context, p *plane.Plane, r *events.Rollout) *Evidence {
	printed := episode.PrintedBy(ctx, p.Store, r)
	e := &Evidence{Tests: r.GradedTests(), VerifierOutput: printed.Verifier,
		AgentOutput: printed.Agent, Unread: printed.Unread,
		Calls: lastCalls(r), Siblings: s.siblings(r.ID)}
	if v := r.Scored; v != nil && v.Log != nil {
		took := time.Duration(v.DurationMS * float64(time.Millisecond)).Round(100 * time.Millisecond)
		e.verifier = fmt.Sprintf("The verifier ended with exit code %d after %s and printed", v.ExitCode, took)
	}
	if err := e.compare(ctx, p, r); err != nil {
		e.Unread = append(e.Unread, fmt.Sprintf("what the rollout changed cannot be read: %v", err))
	}
	return e
}

// compare finds what the rollout has changed. A rollout without a workspace has changed nothing.
func (e *Evidence) compare(ctx context.Context, p *plane.Plane, r *events.Rollout) error {
	left := episode.LastWorkspace(r)
	if left == nil {
		return nil
	}
	task, err := plane.TaskOf(ctx, p.Log, r)
	if err != nil {
		return err
	}
	files, more, err := episode.Changes(ctx, p.Store, task.Snapshot, nil, left, comparedChanges)
	if err != nil {
		return err
	}
	e.MoreChanges = more
	for _, f := range files {
		changed := changedFile{Name: f.Name, What: f.What, Note: f.Note, More: f.More}
		for _, l := range f.Lines {
			line := string(l.Mark) + l.Text
			if l.Mark == difference.Place {
				line = l.Text
			}
			changed.Lines = append(changed.Lines, line)
		}
		e.Changes = append(e.Changes, changed)
	}
	return nil
}

// lastCalls are the last calls of a rollout, in their order.
func lastCalls(r *events.Rollout) (calls []lastCall) {
	for _, turn := range slices.Backward(r.Taken()) {
		story := tellTurn(*r, turn)
		for i, call := range slices.Backward(story.ToolCalls) {
			if len(calls) == mostCalls {
				break
			}
			output := ""
			if results := r.Tools.Answer(turn.Turn).Results; i < len(results) {
				lines := strings.Split(strings.TrimSpace(results[i].Content), "\n")
				output = strings.Join(lines[max(0, len(lines)-outputOfACall):], "\n")
			}
			calls = append(calls, lastCall{turn.Turn, call, output})
		}
	}
	slices.Reverse(calls)
	return calls
}

// listen notes what the group's rollouts said, turn by turn. Turns that an agent has left behind
// are no part of its rollout.
func (s *source) listen(e events.Event) error {
	if e.Type.Kind() != episode.RolloutKind || events.GroupOf(e.Entity) != s.group {
		return nil
	}
	said := s.said[e.Entity]
	if said == nil {
		said = map[int][sha256.Size]byte{}
		s.said[e.Entity] = said
	}
	switch e.Type {
	case events.TurnSampledType:
		turn, err := events.Data[events.TurnSampled](e)
		said[turn.Turn] = episode.SaidIn(turn)
		return err
	case events.RolloutCopiedType:
		copied, err := events.Data[events.RolloutCopied](e)
		for _, turn := range copied.Turns {
			said[turn.Turn] = episode.SaidIn(turn)
		}
		return err
	case events.WorkspaceAnsweredType:
		answered, err := events.Data[events.WorkspaceAnswered](e)
		if answered.Agent != nil {
			for _, turn := range answered.Agent.Left {
				delete(said, turn)
			}
		}
		return err
	}
	return nil
}

// siblings are the other rollouts of the group.
func (s *source) siblings(id string) (others []sibling) {
	group, _ := s.books.FindGroup(s.group)
	for _, member := range group.Members {
		if member == id {
			continue
		}
		r, _ := s.books.Find(member)
		other := sibling{Rollout: member, Outcome: "in flight", Turns: len(s.said[member])}
		switch {
		case r.Failed:
			other.Outcome = "failed"
		case r.Scored:
			other.Outcome, other.Reward = "scored", &r.Reward
		}
		other.DiffersAt = episode.Parting(s.said[id], s.said[member])
		others = append(others, other)
	}
	return others
}

// print prints the evidence behind the tale.
func (e *Evidence) print(w io.Writer) error {
	screen, err := app.NewScreen(w, app.ColorAuto, -1)
	if err != nil {
		return err
	}
	for _, unread := range e.Unread {
		screen.Print(app.Row{{Text: app.Line(unread, 300), Style: app.Yellow}})
	}
	for _, tests := range e.Tests {
		printTests(screen, tests)
	}
	switch {
	case e.VerifierOutput != "":
		printOutput(screen, e.verifier+":", e.VerifierOutput)
	case e.verifier != "" && len(e.Unread) == 0:
		screen.Print(app.Row{{Text: e.verifier + " nothing."}})
	}
	if e.AgentOutput != "" {
		printOutput(screen, "Its agent printed:", e.AgentOutput)
	}
	e.printChanges(screen)
	e.printCalls(screen)
	return e.printSiblings(w)
}

// printTests prints which tests cost the reward.
func printTests(screen *app.Screen, tests events.StageTests) {
	screen.Print(app.Row{{Text: tests.Sentence()}})
	for _, test := range tests.Unmet {
		screen.Print(app.Row{{Text: "  " + app.Line(test.Name, 200), Style: app.Bold},
			{Text: "  " + test.Ending(), Style: app.Red}})
		screen.Print(app.Indent(app.TextRows(test.Message, app.Plain),
			app.Span{Text: "  | ", Style: app.Faint}, screen.Width)...)
	}
	if more := tests.More(); more > 0 {
		screen.Print(app.Row{{Text: fmt.Sprintf("  … %s more", app.Plural(more, "test"))}})
	}
}

// printOutput prints the last lines of an output.
func printOutput(screen *app.Screen, head, output string) {
	rows := app.TextRows(output, app.Plain)
	screen.Print(app.Row{{Text: head}})
	if skipped := len(rows) - printedLines; skipped > 0 {
		screen.Print(app.Row{{Text: fmt.Sprintf("  … %s before, which --json prints", app.Plural(skipped, "line"))}})
		rows = rows[skipped:]
	}
	screen.Print(app.Indent(rows, app.Span{Text: "  | ", Style: app.Faint}, screen.Width)...)
}

func (e *Evidence) printChanges(screen *app.Screen) {
	styles := map[byte]app.Style{difference.Came: app.Green, difference.Went: app.Red, difference.Place: app.Cyan}
	if len(e.Changes) == 0 {
		return
	}
	screen.Print(app.Row{{Text: "It changed the workspace:"}})
	for _, f := range e.Changes {
		screen.Print(app.Row{{Text: strings.TrimRight(fmt.Sprintf("  %s %s  %s", f.What, app.Line(f.Name, 200),
			app.Line(f.Note, 200)), " "), Style: app.Bold}})
		var rows []app.Row
		for _, line := range f.Lines {
			rows = append(rows, app.Row{{Text: app.Untab(app.Clean(line)), Style: styles[line[0]]}})
		}
		if f.More > 0 {
			rows = append(rows, app.Row{{Text: fmt.Sprintf("… %s more", app.Plural(f.More, "line")), Style: app.Faint}})
		}
		screen.Print(app.Indent(rows, app.Span{Text: "  | ", Style: app.Faint}, screen.Width)...)
	}
	if e.MoreChanges > 0 {
		screen.Print(app.Row{{Text: fmt.Sprintf("  … %s more", app.Plural(e.MoreChanges, "file"))}})
	}
}

func (e *Evidence) printCalls(screen *app.Screen) {
	if len(e.Calls) == 0 {
		return
	}
	screen.Print(app.Row{{Text: "Its last calls:"}})
	for _, c := range e.Calls {
		screen.Print(app.Row{{Text: fmt.Sprintf("  turn %d: %s %s  %s", c.Turn, app.Line(c.Name, 40),
			app.Line(c.Arguments, 200), c.ending())}})
		screen.Print(app.Indent(app.TextRows(c.Output, app.Faint),
			app.Span{Text: "  | ", Style: app.Faint}, screen.Width)...)
	}
}

// printSiblings prints the other rollouts as a table.
func (e *Evidence) printSiblings(w io.Writer) error {
	if len(e.Siblings) == 0 {
		return nil
	}
	fmt.Fprintln(w, "Beside it in its group:")
	table := app.NewTable("ROLLOUT", "REWARD", "TURNS", "DIFFERS FROM TURN")
	for _, s := range e.Siblings {
		reward, differs := any(s.Outcome), any("never")
		if s.Reward != nil {
			reward = *s.Reward
		}
		if s.DiffersAt != nil {
			differs = *s.DiffersAt
		}
		table.Row(s.Rollout, reward, s.Turns, differs)
	}
	return table.Print(w)
}
