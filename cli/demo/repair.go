package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/trajectories"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// repairs keeps the rollouts in flight until the first of them has mended its task, which is shown.
type repairs struct {
	chains map[string][]events.Event // by rollout, in flight
	shown  string                    // the rollout that was shown; "" until there is one
}

// take adds an event, and answers the rows to show when it is the verdict on the first repair.
func (r *repairs) take(e events.Event) []app.Row {
	if r.shown != "" || e.Type.Kind() != events.RolloutStartedType.Kind() {
		return nil
	}
	if r.chains == nil {
		r.chains = map[string][]events.Event{}
	}
	r.chains[e.Entity] = append(r.chains[e.Entity], e)
	if e.Type != events.RolloutScoredType && e.Type != events.RolloutFailedType {
		return nil
	}
	rollout, err := events.FoldRollout(r.chains[e.Entity])
	delete(r.chains, e.Entity)
	if err != nil || rollout.Scored == nil || rollout.Scored.Reward < 1 {
		return nil
	}
	r.shown, r.chains = rollout.ID, nil
	return repairRows(&rollout)
}

// repairRows tell a rollout: for each turn what the agent read, ran and changed, then the verdict.
func repairRows(r *events.Rollout) []app.Row {
	rows := []app.Row{{{Text: "a repair: ", Style: app.Bold},
		{Text: fmt.Sprintf("%s of task %s, by policy version %d", r.ID, app.Line(r.Started.Task, 60),
			r.Started.PolicyVersion), Style: app.Plain}}}
	for i := range r.Turns {
		told := toldCalls(r.Turns[i].ToolCalls, r.Tools.Answer(r.Turns[i].Turn).Results)
		if len(told) == 0 {
			told = []app.Row{{{Text: app.Line(r.Turns[i].Content, 60), Style: app.Plain}}}
		}
		for k, of := range told {
			label := "        "
			if k == 0 {
				label = fmt.Sprintf("turn %-2d ", r.Turns[i].Turn)
			}
			rows = append(rows, append(app.Row{{Text: label, Style: app.Faint}}, of...))
		}
	}
	verdict := fmt.Sprintf("reward %.6g", r.Scored.Reward)
	for _, name := range app.SortedKeys(r.Scored.Components) {
		if name != runfile.RewardComponent {
			verdict += fmt.Sprintf(", %s %.6g", app.Line(name, 40), r.Scored.Components[name])
		}
	}
	rows = append(rows, app.Row{{Text: "verifier ", Style: app.Faint}, {Text: verdict, Style: app.Green}})
	return app.Indent(rows, app.Span{Text: "│ ", Style: app.Faint}, 0)
}

// edit is one replacement that a call asked for.
type edit struct{ path, before, after string }

// toldCalls tell the calls of one turn in few rows: what was read in one, what was changed and
// changed back in one, then each change that stayed as a difference, and the last command.
func toldCalls(calls []events.ToolCall, results []events.ToolResult) (rows []app.Row) {
	var listed, read []string
	var edits []edit
	var command string
	var answer *events.ToolResult
	for i, call := range calls {
		var given map[string]any
		if json.Unmarshal([]byte(call.Arguments), &given) != nil {
			continue
		}
		path, before := argument(given, trajectories.PathNames), argument(given, trajectories.OldNames)
		switch ran := argument(given, trajectories.CommandNames); {
		case ran != "":
			command, answer = ran, nil
			if i < len(results) {
				answer = &results[i]
			}
		case before != "":
			edits = append(edits, edit{path, before, argument(given, trajectories.NewNames)})
		case path != "" && call.Name == "list_dir":
			listed = append(listed, app.Line(path, 60))
		case path != "":
			read = append(read, app.Line(path, 60))
		}
	}
	if len(listed) > 0 {
		rows = append(rows, app.Row{{Text: "lists " + strings.Join(listed, ", "), Style: app.Plain}})
	}
	if len(read) > 0 {
		rows = append(rows, app.Row{{Text: "reads " + strings.Join(read, ", "), Style: app.Plain}})
	}
	stayed := stayed(edits)
	if tried := (len(edits) - len(stayed)) / 2; tried > 0 {
		rows = append(rows, app.Row{{Text: fmt.Sprintf("tries %d changes of %s and runs the tests after each", tried,
			app.Line(edits[0].path, 60)), Style: app.Plain}})
	}
	for _, e := range stayed {
		rows = append(rows, app.Row{{Text: "changes " + app.Line(e.path, 60), Style: app.Plain}})
		rows = append(rows, app.Shorten(trajectories.DiffRows(e.before, e.after), 6, 2, false)...)
	}
	if command != "" && len(edits) == len(stayed) {
		rows = append(rows, commandRow(command, answer))
	}
	return rows
}

// stayed leaves out the edits of a turn that a later one of it takes back.
func stayed(edits []edit) []edit {
	left := slices.Clone(edits)
	for i := 0; i < len(left); i++ {
		e := left[i]
		back := slices.Index(left[i+1:], edit{e.path, e.after, e.before})
		if back >= 0 {
			left = slices.Delete(left, i+1+back, i+2+back)
			left = slices.Delete(left, i, i+1)
			i--
		}
	}
	return left
}

// commandRow tells a command and how it ended.
func commandRow(command string, answer *events.ToolResult) app.Row {
	told := app.Row{{Text: "$ ", Style: app.Cyan}, {Text: app.Line(command, 60), Style: app.Plain}}
	if answer == nil || answer.ExitCode == nil {
		return told
	}
	if *answer.ExitCode == 0 {
		return append(told, app.Span{Text: "  ✓", Style: app.Green})
	}
	for text := range strings.Lines(answer.Content) {
		if strings.Contains(strings.ToLower(text), "not ok") || strings.Contains(text, "FAIL") {
			return append(told, app.Span{Text: "  ✗ " + app.Line(text, 80), Style: app.Red})
		}
	}
	return append(told, app.Span{Text: fmt.Sprintf("  ✗ exit code %d", *answer.ExitCode), Style: app.Red})
}

func argument(given map[string]any, names []string) string {
	for _, name := range names {
		if text, ok := given[name].(string); ok {
			return text
		}
	}
	return ""
}
