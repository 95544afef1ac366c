package trajectories

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/export"
	"github.com/rondo-rl/rondo/storage"
)

// view prints rollouts on a screen.
type view struct{ *app.Screen }

// rollout prints a rollout.
func (s *view) rollout(shown *shownRollout, o showOptions) error {
	t := shown.Trajectory
	turns := 0
	found := false
	for _, m := range t.Messages {
		if m.Role == "assistant" {
			turns = max(turns, int(m.Turn)+1)
			found = found || int(m.Turn) == o.turn
		}
	}
	if o.turn >= 0 && !found {
		return fmt.Errorf("--turn %d: rollout %s has %d turns, counted from 0", o.turn, t.Rollout, turns)
	}
	s.Print(shown.header()...)
	segment := int32(0)
	for i := 0; i < len(t.Messages); {
		m := t.Messages[i]
		end := i + 1
		if m.Role == "assistant" {
			for end < len(t.Messages) && t.Messages[end].Role == "tool" {
				end++
			}
		}
		if m.Segment != segment && o.turn < 0 {
			s.Print(app.Row{}, app.Row{{Text: fmt.Sprintf(
				"┄┄ segment %d: its prompt does not go on where the last one ended%s", m.Segment,
				causeText[shown.causeOf(m.Turn)]), Style: app.Yellow}})
		}
		segment = m.Segment
		switch {
		case m.Role == "assistant" && (o.turn < 0 || int(m.Turn) == o.turn):
			s.turn(shown, m, t.Messages[i+1:end], o)
		case m.Role != "assistant" && m.Role != "prompt" && o.turn < 0:
			s.message(m, o.full)
		}
		i = end
	}
	return nil
}

// header says what the rollout was and what became of it.
func (s *shownRollout) header() []app.Row {
	r, t := &s.Rollout, s.Trajectory
	tokens, sampled := 0, 0
	turns := map[int32]bool{}
	for _, m := range t.Messages {
		tokens += len(m.TokenIDs)
		for _, yes := range m.LossMask {
			if yes {
				sampled++
			}
		}
		if m.Role == "assistant" {
			turns[m.Turn] = true
		}
	}
	rows := []app.Row{{{Text: t.Rollout, Style: app.Bold}, {Text: "  " + app.Line(t.Task, 100), Style: app.Plain}}}
	fact := func(name, text string, st app.Style) {
		rows = append(rows, app.Row{{Text: fmt.Sprintf("  %-10s", name), Style: app.Faint}, {Text: text, Style: st}})
	}
	s.outcome(fact)
	versions := fmt.Sprintf("version %d at dispatch", t.DispatchVersion)
	if len(turns) > 0 {
		versions += ", sampled with " + s.sampledWith()
	}
	fact("policy", versions, app.Plain)
	if o := r.Started.Origin; o != nil {
		fact("fork", fmt.Sprintf("of %s behind turn %d: turns 0 to %d are that one's", o.Rollout, o.Turn, o.Turn),
			app.Plain)
	}
	size := fmt.Sprintf("%d turns, %d tokens (%d sampled)", len(turns), tokens, sampled)
	if t.TextOnly {
		size += ", text only"
	}
	if !s.Began.IsZero() {
		size += fmt.Sprintf(", %s from %s", s.Last.Sub(s.Began).Round(100*time.Millisecond),
			s.Began.UTC().Format(time.DateTime))
	}
	fact("size", size, app.Plain)
	if text := s.samples(); text != "" {
		fact("samples", text, app.Plain)
	}
	if f := r.Finished; f != nil && len(f.Masked) > 0 {
		var rules []string
		for _, rule := range slices.Sorted(maps.Keys(f.Masked)) {
			rules = append(rules, fmt.Sprintf("%d by rule %s", f.Masked[rule], app.Line(rule, 64)))
		}
		fact("untrained", "sampled tokens of conversations: "+strings.Join(rules, ", "), app.Plain)
	}
	others := map[string]int{}
	for _, turn := range r.Taken() {
		if model := turn.AnsweredBy(); model != "" {
			others[model]++
		}
	}
	for _, model := range slices.Sorted(maps.Keys(others)) {
		fact("answered", fmt.Sprintf("%d turns by %s", others[model], app.Line(model, 64)), app.Plain)
	}
	if ended := r.AgentEnded(); ended != nil && ended.Recalled+len(ended.Left) > 0 {
		fact("recalled", fmt.Sprintf("%d turns from the log, %d left behind", ended.Recalled, len(ended.Left)),
			app.Plain)
	}
	for _, retry := range s.Retried {
		if retry.Behind > 0 {
			fact("restarted", fmt.Sprintf("behind %d turns, %s: %s", retry.Behind, app.Line(retry.Class, 40),
				app.Line(retry.Message, 200)), app.Yellow)
			continue
		}
		fact("retried", fmt.Sprintf("%s, %s: %s", app.Line(retry.Stage, 40), app.Line(retry.Class, 40),
			app.Line(retry.Message, 200)), app.Yellow)
	}
	for _, remark := range s.Remarks {
		fact("remark", app.Line(remark, 400), app.Yellow)
	}
	return rows
}

// sampledWith names the policy versions of the turns. That of an external model may be unknown.
func (s *shownRollout) sampledWith() string {
	low, high, unknown := int64(-1), int64(-1), false
	for _, m := range s.Trajectory.Messages {
		if m.Role != "assistant" || s.Rollout.AnsweredBy(int(m.Turn)) != "" {
			continue
		}
		from, to := m.VersionRange()
		unknown = unknown || from < 0 || m.UnknownVersions() > 0
		if high = max(high, to); low < 0 || from >= 0 && from < low {
			low = from
		}
	}
	text := fmt.Sprintf("versions %d to %d", low, high)
	switch {
	case low < 0:
		return "an unknown version"
	case low == high:
		text = fmt.Sprintf("version %d", low)
	}
	if unknown {
		text += " and an unknown one"
	}
	return text
}

// outcome tells how it ended and what the feeds made of it.
func (s *shownRollout) outcome(fact func(name, text string, st app.Style)) {
	r := &s.Rollout
	stopped := ""
	if s.Recorded {
		stopped = " (" + app.Line(s.Trajectory.StopReason, 40) + ")"
	}
	switch {
	case r.Failed != nil:
		fact("outcome", fmt.Sprintf("failed%s: %s, %s: %s", stopped, app.Line(r.Failed.Stage, 40),
			app.Line(r.Failed.Class, 40), app.Line(r.Failed.Message, 300)), app.Red)
	case r.Scored == nil && r.Finished == nil:
		fact("outcome", "in flight", app.Yellow)
	case r.Scored == nil:
		fact("outcome", "waits for its reward"+stopped, app.Yellow)
	default:
		fact("outcome", "scored"+stopped, app.Plain)
		text := fmt.Sprintf("%.6g", r.Scored.Reward)
		for _, name := range app.SortedKeys(r.Scored.Components) {
			text += fmt.Sprintf("  %s %.6g", app.Line(name, 40), r.Scored.Components[name])
		}
		if m := s.Member; m != nil && !m.Failed {
			text += fmt.Sprintf("  advantage %+.4g", m.Advantage)
		}
		fact("reward", text, app.Bold)
		if f := r.Scored.Forfeit; f != nil {
			fact("forfeited", app.Line(f.Class+": "+f.Message, 300), app.Yellow)
		}
		for _, flag := range r.Scored.Flags {
			fact("flag", app.Line(flag, 300), app.Yellow)
		}
	}
	for _, b := range s.Batches {
		if text := fmt.Sprintf("feed %s, step %d", app.Line(b.Feed, 40), b.Step); b.Masked == "" {
			fact("trained", text, app.Plain)
		} else {
			fact("masked", text+": "+app.Line(b.Masked, 60), app.Yellow)
		}
	}
	for _, d := range s.Dropped {
		text := fmt.Sprintf("feed %s does not train on its group: %s", app.Line(d.Feed, 40), d.Reason)
		if d.Reason == events.DropStale {
			text += fmt.Sprintf(", %d versions old", d.Staleness)
		} else if d.Filter != "" {
			text += ", " + app.Line(d.Filter, 60)
		}
		fact("dropped", text, app.Yellow)
	}
}

// message prints what was said to the model.
func (s *view) message(m storage.Message, full bool) {
	s.Print(app.Row{}, app.Row{{Text: "── " + app.Line(m.Role+" "+m.Name, 100), Style: app.Faint}})
	s.Print(app.Shorten(app.TextRows(m.Content, app.Plain), 40, 20, full)...)
}

// turn prints one generation and what its calls answered.
func (s *view) turn(shown *shownRollout, m storage.Message, answers []storage.Message, o showOptions) {
	sampler := versionsText(m, shown.Rollout.Copied)
	if model := shown.Rollout.AnsweredBy(int(m.Turn)); model != "" {
		sampler = "answered by " + app.Line(model, 64)
	}
	facts := fmt.Sprintf("%s · %d tokens · %s", sampler, len(m.TokenIDs), seconds(m.Duration.Seconds()))
	if m.FinishReason != "" {
		facts += " · " + app.Line(m.FinishReason, 20)
	}
	facts += shown.summaryOf(m.Turn) + columnsOf(m)
	s.Print(app.Row{}, app.Row{{Text: fmt.Sprintf("── turn %d ", m.Turn), Style: app.Bold},
		{Text: facts, Style: app.Faint}})
	reasoning, said := export.Thoughts(m)
	s.Print(app.Indent(app.Shorten(app.TextRows(reasoning, app.Faint), 12, 4, o.full),
		app.Span{Text: "┊ ", Style: app.Faint}, s.Width)...)
	s.Print(app.TextRows(said, app.Plain)...)
	if o.logprobs {
		s.Print(app.Indent(tokenRows(m, shown.Spelled), app.Span{Text: "  ", Style: app.Plain}, s.Width)...)
	}
	calls, left := export.PairCalls(export.Calls(m), answers, shown.Rollout.Tools.Answer(int(m.Turn)).Results)
	s.calls(calls, o.full)
	s.Print(networkRows(shown.Rollout.Tools.Answer(int(m.Turn)).Network, o.full)...)
	for _, answer := range left {
		s.message(answer, o.full)
	}
}

// columnsOf names what the server said of the turn's tokens beside their
// log-probabilities, and of how many.
func columnsOf(m storage.Message) (text string) {
	var names []string
	tokens := map[string]int32{}
	for _, c := range m.Columns {
		if tokens[c.Name] == 0 {
			names = append(names, c.Name)
		}
		tokens[c.Name] += c.Length
	}
	for _, name := range names {
		text += fmt.Sprintf(" · %s of %d", name, tokens[name])
	}
	return text
}

// versionsText says which policy versions sampled a turn, in their order. The first so many
// turns of a fork are copied.
func versionsText(m storage.Message, copied int) string {
	if int(m.Turn) < copied {
		return "not sampled here"
	}
	if len(m.Versions) == 0 && m.PolicyVersion < 0 {
		return "version unknown"
	}
	if len(m.Versions) == 0 {
		return fmt.Sprintf("version %d", m.PolicyVersion)
	}
	const most = 8
	var parts []string
	for i, v := range m.Versions {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(m.Versions)-most))
			break
		}
		name := "unknown"
		if v.Version >= 0 {
			name = fmt.Sprint(v.Version)
		}
		parts = append(parts, fmt.Sprintf("%s from token %d", name, v.Start))
	}
	return "versions " + strings.Join(parts, ", ")
}

// leastColumn is the width below which calls stand one below the other.
const leastColumn = 56

// calls prints a turn's calls, side by side where there is room.
func (s *view) calls(calls []export.Call, full bool) {
	const gap = " ┃ "
	beneath := 1
	if s.Width > 0 {
		beneath = min(len(calls), (s.Width+len(" | "))/(leastColumn+len(" | ")))
	}
	if beneath < 2 {
		for _, c := range calls {
			s.Print(shownCall{c}.rows(s.Width, full)...)
		}
		return
	}
	column := (s.Width - (beneath-1)*len(" | ")) / beneath
	for len(calls) > 0 {
		n := min(beneath, len(calls))
		var blocks [][]app.Row
		for _, c := range calls[:n] {
			blocks = append(blocks, shownCall{c}.rows(column, full))
		}
		s.Print(app.SideBySide(blocks, column, gap)...)
		calls = calls[n:]
	}
}
