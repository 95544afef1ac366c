package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// rollout prints a rollout.
func (s *screen) rollout(shown *shownRollout, o showOptions) error {
	t := shown.trajectory
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
	s.print(shown.header()...)
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
			s.print(row{}, row{{fmt.Sprintf("┄┄ segment %d: its prompt does not go on where the last one ended", m.Segment), yellow}})
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
func (s *shownRollout) header() []row {
	r, t := &s.rollout, s.trajectory
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
	rows := []row{{{t.Rollout, bold}, {"  " + line(t.Task, 100), plain}}}
	fact := func(name, text string, st style) {
		rows = append(rows, row{{fmt.Sprintf("  %-10s", name), faint}, {text, st}})
	}
	s.outcome(fact)
	versions := fmt.Sprintf("version %d at dispatch", t.DispatchVersion)
	if f := r.Finished; f != nil && f.MaxVersion >= 0 {
		versions += fmt.Sprintf(", sampled with %d to %d", f.MinVersion, f.MaxVersion)
	}
	fact("policy", versions, plain)
	if o := r.Started.Origin; o != nil {
		fact("fork", fmt.Sprintf("of %s behind turn %d: turns 0 to %d are that one's", o.Rollout, o.Turn, o.Turn), plain)
	}
	size := fmt.Sprintf("%d turns, %d tokens (%d sampled)", len(turns), tokens, sampled)
	if t.TextOnly {
		size += ", text only"
	}
	if !s.began.IsZero() {
		size += fmt.Sprintf(", %s from %s", s.last.Sub(s.began).Round(100*time.Millisecond), s.began.UTC().Format(time.DateTime))
	}
	fact("size", size, plain)
	for _, retry := range s.retried {
		fact("retried", fmt.Sprintf("%s, %s: %s", line(retry.Stage, 40), line(retry.Class, 40), line(retry.Message, 200)), yellow)
	}
	for _, remark := range s.remarks {
		fact("remark", remark, yellow)
	}
	return rows
}

// outcome tells how it ended and what the feeds made of it.
func (s *shownRollout) outcome(fact func(name, text string, st style)) {
	r := &s.rollout
	stopped := ""
	if s.recorded {
		stopped = " (" + line(s.trajectory.StopReason, 40) + ")"
	}
	switch {
	case r.Failed != nil:
		fact("outcome", fmt.Sprintf("failed%s: %s, %s: %s", stopped, line(r.Failed.Stage, 40), line(r.Failed.Class, 40), line(r.Failed.Message, 300)), red)
	case r.Scored == nil && r.Finished == nil:
		fact("outcome", "in flight", yellow)
	case r.Scored == nil:
		fact("outcome", "waits for its reward"+stopped, yellow)
	default:
		fact("outcome", "scored"+stopped, plain)
		text := fmt.Sprintf("%.6g", r.Scored.Reward)
		for _, name := range sortedKeys(r.Scored.Components) {
			text += fmt.Sprintf("  %s %.6g", line(name, 40), r.Scored.Components[name])
		}
		if m := s.member; m != nil && !m.Failed {
			text += fmt.Sprintf("  advantage %+.4g", m.Advantage)
		}
		fact("reward", text, bold)
		for _, flag := range r.Scored.Flags {
			fact("flag", line(flag, 300), yellow)
		}
	}
	for _, b := range s.batches {
		if text := fmt.Sprintf("feed %s, step %d", line(b.feed, 40), b.step); b.masked == "" {
			fact("trained", text, plain)
		} else {
			fact("masked", text+": "+line(b.masked, 60), yellow)
		}
	}
	for _, d := range s.dropped {
		text := fmt.Sprintf("feed %s does not train on its group: %s", line(d.Feed, 40), d.Reason)
		if d.Reason == events.DropStale {
			text += fmt.Sprintf(", %d versions old", d.Staleness)
		} else if d.Filter != "" {
			text += ", " + line(d.Filter, 60)
		}
		fact("dropped", text, yellow)
	}
}

// message prints what was said to the model.
func (s *screen) message(m storage.Message, full bool) {
	s.print(row{}, row{{"── " + line(m.Role+" "+m.Name, 100), faint}})
	s.print(shorten(textRows(m.Content, plain), 40, 20, full)...)
}

// turn prints one generation and what its calls answered.
func (s *screen) turn(shown *shownRollout, m storage.Message, answers []storage.Message, o showOptions) {
	version := fmt.Sprintf("version %d", m.PolicyVersion)
	if m.PolicyVersion < 0 {
		version = "not sampled here"
	}
	facts := fmt.Sprintf("%s · %d tokens · %s", version, len(m.TokenIDs), seconds(m.Duration.Seconds()))
	if m.FinishReason != "" {
		facts += " · " + line(m.FinishReason, 20)
	}
	s.print(row{}, row{{fmt.Sprintf("── turn %d ", m.Turn), bold}, {facts, faint}})
	reasoning, said := splitReasoning(m.Content)
	s.print(indent(shorten(textRows(reasoning, faint), 12, 4, o.full), span{"┊ ", faint}, s.width)...)
	s.print(textRows(said, plain)...)
	if o.logprobs {
		s.print(indent(tokenRows(m, shown.spelled), span{"  ", plain}, s.width)...)
	}
	calls, left := pairCalls(callsOf(m), answers, shown.rollout.Tools[int(m.Turn)].Results)
	s.calls(calls, o.full)
	for _, answer := range left {
		s.message(answer, o.full)
	}
}

// leastColumn is the width below which calls stand one below the other.
const leastColumn = 56

// calls prints a turn's calls, side by side where there is room.
func (s *screen) calls(calls []shownCall, full bool) {
	const gap = " ┃ "
	beneath := 1
	if s.width > 0 {
		beneath = min(len(calls), (s.width+len(" | "))/(leastColumn+len(" | ")))
	}
	if beneath < 2 {
		for _, c := range calls {
			s.print(c.rows(s.width, full)...)
		}
		return
	}
	column := (s.width - (beneath-1)*len(" | ")) / beneath
	for len(calls) > 0 {
		n := min(beneath, len(calls))
		var blocks [][]row
		for _, c := range calls[:n] {
			blocks = append(blocks, c.rows(column, full))
		}
		s.print(beside(blocks, column, gap)...)
		calls = calls[n:]
	}
}

// callsOf are the tool calls of a message; text that is no list of them counts as one call of an unknown tool.
func callsOf(m storage.Message) (calls []events.ToolCall) {
	if m.ToolCalls == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(m.ToolCalls), &calls); err != nil {
		return []events.ToolCall{{Name: "unknown", Arguments: m.ToolCalls}}
	}
	return calls
}

func callsText(calls []events.ToolCall) string {
	if len(calls) == 0 {
		return ""
	}
	text, _ := json.Marshal(calls) // texts are always JSON
	return string(text)
}

// splitReasoning takes what a model thought aloud, between <think> and </think> at the beginning, from what it said. Templates that
// open the block themselves leave only its end.
func splitReasoning(content string) (reasoning, said string) {
	rest := strings.TrimLeft(content, " \n\t")
	thought, said, ended := strings.Cut(rest, "</think>")
	opened := strings.HasPrefix(rest, "<think>")
	switch {
	case !ended && !opened:
		return "", content
	case !ended: // its output ended before its thoughts
		return strings.TrimSpace(strings.TrimPrefix(rest, "<think>")), ""
	}
	return strings.TrimSpace(strings.TrimPrefix(thought, "<think>")), strings.TrimLeft(said, "\n")
}

func annotation(a events.RolloutAnnotated) string {
	text := "annotation"
	if a.Turn != nil {
		text += fmt.Sprintf(" of turn %d", *a.Turn)
	}
	if a.Reward != nil {
		text += fmt.Sprintf(", reward %g", *a.Reward)
	}
	return text + ": " + line(a.Text, 300)
}

func feedback(f events.FeedbackRecorded) string {
	text := "feedback: " + line(f.Signal, 40)
	if reward, ok := f.Score(); ok {
		text += fmt.Sprintf(", reward %g", reward)
	}
	if f.Text != "" {
		text += ": " + line(f.Text, 300)
	}
	return text
}
