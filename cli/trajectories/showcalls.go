package trajectories

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/export"
)

// shownCall is a tool call as it is shown.
type shownCall struct{ export.Call }

// Rows of a call that are shown unless all are asked for: of what it writes, and of its answer.
const (
	argumentHead, argumentTail = 16, 6
	answerHead, answerTail     = 8, 6
)

// rows shows a call within some columns (0: no limit).
func (c shownCall) rows(most int, full bool) []app.Row {
	head := app.Row{{Text: "▸ ", Style: app.Cyan}, {Text: app.Line(c.Call.Call.Name, 60), Style: app.Bold}}
	inline, body := argumentRows(c.Call.Call.Arguments)
	for _, text := range inline {
		head = append(head, app.Span{Text: " " + text, Style: app.Plain})
	}
	rows := head.Wrap(most)
	gutter := app.Span{Text: "│ ", Style: app.Faint}
	rows = append(rows, app.Indent(app.Shorten(body, argumentHead, argumentTail, full), gutter, most)...)
	rows = append(rows, app.Indent([]app.Row{c.verdict()}, gutter, most)...)
	if c.Answer != nil {
		answer := app.TextRows(c.Answer.Content, app.Plain)
		rows = append(rows, app.Indent(app.Shorten(answer, answerHead, answerTail, full), gutter, most)...)
	}
	return rows
}

// verdict says how the call ended.
func (c shownCall) verdict() app.Row {
	if c.Answer == nil && c.Recorded == nil {
		return app.Row{{Text: "not answered", Style: app.Yellow}}
	}
	state, mark := app.Span{Text: "✓", Style: app.Green}, ""
	if r := c.Recorded; r != nil {
		switch {
		case r.ExitCode != nil && *r.ExitCode != 0:
			state, mark = app.Span{Text: "✗", Style: app.Red}, fmt.Sprintf(" exit code %d", *r.ExitCode)
		case r.ExitCode != nil:
			mark = " exit code 0"
		case r.Error:
			state, mark = app.Span{Text: "✗", Style: app.Red}, " error"
		}
		if r.DroppedBytes > 0 {
			mark += fmt.Sprintf(", %d bytes left out", r.DroppedBytes)
		}
		return app.Row{state, {Text: fmt.Sprintf("%s  %s", mark, seconds(r.DurationMS/1000)), Style: app.Faint}}
	}
	return app.Row{{Text: "→", Style: app.Faint}, {Text: "  " + seconds(c.Answer.Duration.Seconds()), Style: app.Faint}}
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
	CommandNames = []string{"command", "cmd"}
	PathNames    = []string{"file_path", "target_file", "path", "target_directory", "file"}
	OldNames     = []string{"old_string", "old_str", "search"}
	NewNames     = []string{"new_string", "new_str", "replace"}
	wholeNames   = []string{"contents", "content", "file_text"}
	patchNames   = []string{"patch", "input"}
)

// argumentRows shows arguments: short ones behind the tool's name, edits as
// differences, long ones below.
func argumentRows(arguments string) (inline []string, body []app.Row) {
	var given map[string]any
	if err := json.Unmarshal([]byte(arguments), &given); err != nil || given == nil {
		if strings.TrimSpace(arguments) == "" {
			return nil, nil
		}
		return nil, append([]app.Row{{{Text: "malformed arguments:", Style: app.Yellow}}},
			app.TextRows(arguments, app.Plain)...)
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
	if path, ok := take(PathNames); ok {
		inline = append(inline, app.Line(path, 200))
	}
	if command, ok := take(CommandNames); ok {
		rows := app.TextRows(command, app.Plain)
		for i := range rows {
			prompt := "  "
			if i == 0 {
				prompt = "$ "
			}
			body = append(body, append(app.Row{{Text: prompt, Style: app.Cyan}}, rows[i]...))
		}
	}
	before, hasBefore := take(OldNames)
	after, hasAfter := take(NewNames)
	if hasBefore || hasAfter {
		body = append(body, DiffRows(before, after)...)
	}
	if whole, ok := take(wholeNames); ok {
		body = append(body, DiffRows("", whole)...)
	}
	if patch, ok := take(patchNames); ok {
		body = append(body, patchRows(patch)...)
	}
	return otherArguments(given, inline, body)
}

// inlineLength is how long an argument may be behind the tool's name.
const inlineLength = 60

func otherArguments(given map[string]any, inline []string, body []app.Row) ([]string, []app.Row) {
	for _, name := range app.SortedKeys(given) {
		text, isText := given[name].(string)
		if !isText {
			encoded, _ := json.Marshal(given[name]) // it was decoded from JSON
			text = string(encoded)
		}
		if len(text) <= inlineLength && !strings.Contains(text, "\n") {
			inline = append(inline, app.Line(name, 40)+"="+app.Line(text, inlineLength))
			continue
		}
		body = append(body, app.Row{{Text: app.Line(name, 40) + ":", Style: app.Faint}})
		body = append(body, app.TextRows(text, app.Plain)...)
	}
	return inline, body
}
