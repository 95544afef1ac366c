package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// shownCall is a tool call with what answered it.
type shownCall struct {
	call     events.ToolCall
	answer   *storage.Message   // nil: not answered
	recorded *events.ToolResult // nil where the log does not have it, as of outsiders' rollouts
}

// pairCalls finds the answer to each call of a turn: the first with its id that answers no earlier call, else the one at its
// place. left are the answers to nothing.
func pairCalls(calls []events.ToolCall, answers []storage.Message, recorded []events.ToolResult) (paired []shownCall, left []storage.Message) {
	taken, used := make([]bool, len(answers)), make([]bool, len(recorded))
	for i, c := range calls {
		p := shownCall{call: c}
		if at := freeAnswer(c.ID, i, taken, func(k int) string { return answers[k].ToolCallID }); at >= 0 {
			p.answer, taken[at] = &answers[at], true
		}
		if at := freeAnswer(c.ID, i, used, func(k int) string { return recorded[k].CallID }); at >= 0 {
			p.recorded, used[at] = &recorded[at], true
		}
		paired = append(paired, p)
	}
	for i := range answers {
		if !taken[i] {
			left = append(left, answers[i])
		}
	}
	return paired, left
}

func freeAnswer(id string, place int, taken []bool, idOf func(int) string) int {
	for i := range taken {
		if !taken[i] && idOf(i) == id {
			return i
		}
	}
	if place < len(taken) && !taken[place] && (id == "" || idOf(place) == "") {
		return place
	}
	return -1
}

// Rows of a call that are shown unless all are asked for: of what it writes, and of its answer.
const (
	argumentHead, argumentTail = 16, 6
	answerHead, answerTail     = 8, 6
)

// rows shows a call within some columns (0: no limit).
func (c shownCall) rows(most int, full bool) []row {
	head := row{{"▸ ", cyan}, {line(c.call.Name, 60), bold}}
	inline, body := argumentRows(c.call.Arguments)
	for _, text := range inline {
		head = append(head, span{" " + text, plain})
	}
	rows := head.wrap(most)
	gutter := span{"│ ", faint}
	rows = append(rows, indent(shorten(body, argumentHead, argumentTail, full), gutter, most)...)
	rows = append(rows, indent([]row{c.verdict()}, gutter, most)...)
	if c.answer != nil {
		answer := textRows(c.answer.Content, plain)
		rows = append(rows, indent(shorten(answer, answerHead, answerTail, full), gutter, most)...)
	}
	return rows
}

// verdict says how the call ended.
func (c shownCall) verdict() row {
	if c.answer == nil && c.recorded == nil {
		return row{{"not answered", yellow}}
	}
	state, mark := span{"✓", green}, ""
	if r := c.recorded; r != nil {
		switch {
		case r.ExitCode != nil && *r.ExitCode != 0:
			state, mark = span{"✗", red}, fmt.Sprintf(" exit code %d", *r.ExitCode)
		case r.ExitCode != nil:
			mark = " exit code 0"
		case r.Error:
			state, mark = span{"✗", red}, " error"
		}
		if r.DroppedBytes > 0 {
			mark += fmt.Sprintf(", %d bytes left out", r.DroppedBytes)
		}
		return row{state, {fmt.Sprintf("%s  %s", mark, seconds(r.DurationMS/1000)), faint}}
	}
	return row{{"→", faint}, {"  " + seconds(c.answer.Duration.Seconds()), faint}}
}

// seconds writes a duration with as many digits as it deserves.
func seconds(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.0f ms", s*1000)
	}
	return fmt.Sprintf("%.1f s", s)
}

// Names under which tools take what they write; those of other harnesses are known, too.
var (
	commandNames = []string{"command", "cmd"}
	pathNames    = []string{"file_path", "target_file", "path", "target_directory", "file"}
	oldNames     = []string{"old_string", "old_str", "search"}
	newNames     = []string{"new_string", "new_str", "replace"}
	wholeNames   = []string{"contents", "content", "file_text"}
	patchNames   = []string{"patch", "input"}
)

// argumentRows shows arguments: short ones behind the tool's name, edits as differences, long ones below.
func argumentRows(arguments string) (inline []string, body []row) {
	var given map[string]any
	if err := json.Unmarshal([]byte(arguments), &given); err != nil || given == nil {
		if strings.TrimSpace(arguments) == "" {
			return nil, nil
		}
		return nil, append([]row{{{"malformed arguments:", yellow}}}, textRows(arguments, plain)...)
	}
	take := func(names []string) (string, bool) {
		for _, name := range names {
			if text, ok := given[name].(string); ok {
				delete(given, name)
				return text, true
			}
		}
		return "", false
	}
	if path, ok := take(pathNames); ok {
		inline = append(inline, line(path, 200))
	}
	if command, ok := take(commandNames); ok {
		rows := textRows(command, plain)
		for i := range rows {
			prompt := "  "
			if i == 0 {
				prompt = "$ "
			}
			body = append(body, append(row{{prompt, cyan}}, rows[i]...))
		}
	}
	before, hasBefore := take(oldNames)
	after, hasAfter := take(newNames)
	if hasBefore || hasAfter {
		body = append(body, diffRows(before, after)...)
	}
	if whole, ok := take(wholeNames); ok {
		body = append(body, diffRows("", whole)...)
	}
	if patch, ok := take(patchNames); ok {
		body = append(body, patchRows(patch)...)
	}
	return otherArguments(given, inline, body)
}

// inlineLength is how long an argument may be behind the tool's name.
const inlineLength = 60

func otherArguments(given map[string]any, inline []string, body []row) ([]string, []row) {
	for _, name := range sortedKeys(given) {
		text, isText := given[name].(string)
		if !isText {
			encoded, _ := json.Marshal(given[name]) // it was decoded from JSON
			text = string(encoded)
		}
		if len(text) <= inlineLength && !strings.Contains(text, "\n") {
			inline = append(inline, line(name, 40)+"="+line(text, inlineLength))
			continue
		}
		body = append(body, row{{line(name, 40) + ":", faint}})
		body = append(body, textRows(text, plain)...)
	}
	return inline, body
}
