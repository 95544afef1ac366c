package dashboard

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// mixed is a run with rollouts of two tasks: two are scored, one has failed, one is in flight. The
// second has made a call that failed.
func (d *desk) mixed() {
	d.Helper()
	servicetest.OpenRun(d, d.log, "live", servicetest.Config("fix-clamp", "=Mend"))
	for i, task := range []string{"fix-clamp", "fix-clamp", "=Mend", "=Mend"} {
		group := events.GroupID(int64(i + 1))
		rollout := events.RolloutID(group, 0)
		d.state(events.GroupOpenedType, group, "0", events.GroupOpened{Task: task, Size: 1})
		servicetest.StartRollout(d, d.log, "live", rollout, task)
		d.state(events.TurnSampledType, rollout, "0", events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "a",
			Name: "grep", Arguments: "{}"}}})
		d.state(events.ToolsCompletedType, rollout, "0",
			events.ToolsCompleted{Results: []events.ToolResult{{CallID: "a", Name: "grep", Error: i == 1}}})
		switch i {
		case 0, 1:
			d.state(events.RolloutFinishedType, rollout,
				"0", events.RolloutFinished{Task: task, StopReason: events.StopFinished, Turns: 1,
					Tokens: 30, Sampled: 10})
			d.state(events.RolloutScoredType, rollout, "0", events.RolloutScored{Reward: float64(i) / 2})
		case 2:
			d.state(events.RolloutFailedType, rollout,
				"0", events.RolloutFailed{Stage: events.StageTools, Class: "sandbox"})
		}
	}
}

// TestRolloutsAreChosen: the page and the file have the rollouts that the
// address chooses, and no other.
func TestRolloutsAreChosen(t *testing.T) {
	d := newDesk(t)
	d.mixed()
	d.marks()
	all := []string{"g000004-0", "g000003-0", "g000002-0", "g000001-0"}
	for query, want := range map[string][]string{
		"":                              all,
		"task=CLAMP":                    all[2:],
		"task=mend":                     all[:2],
		"task=nothing":                  nil,
		"least=0":                       all[2:], // the others have no reward
		"least=0.5":                     all[2:3],
		"most=0.4":                      all[3:],
		"least=0.1&most=0.2":            nil,
		"calls=failed":                  all[2:3],
		"calls=failed&most=0":           nil,
		"marked=yes":                    {all[0], all[2]},
		"marked=yes&task=clamp":         all[2:3],
		"outcome=failed":                all[1:2],
		"outcome=failed&task=fix":       nil,
		"outcome=in_flight&task=mend":   all[:1],
		"task=mend&least=&most=&calls=": all[:2],
	} {
		t.Run(query, func(t *testing.T) {
			page := d.show("/runs/live?" + query)
			var shown []string
			for _, link := range linksOf(t, part(t, page, "rollouts")) {
				shown = append(shown, strings.TrimPrefix(link, "/runs/live/rollouts/"))
			}
			if !slices.Equal(shown, want) || !strings.Contains(page, fmt.Sprintf("<p>%d rollouts</p>", len(want))) {
				t.Errorf("the page has %q, want %q", shown, want)
			}
			export := linksOf(t, page)[slices.IndexFunc(linksOf(t, page),
				func(l string) bool { return strings.Contains(l, ".csv") })]
			rows, err := csv.NewReader(strings.NewReader(d.show(export))).ReadAll()
			if err != nil || !slices.Equal(rows[0], columns) {
				t.Fatal(rows, err)
			}
			var saved []string
			for _, row := range rows[1:] {
				saved = append(saved, row[0])
			}
			if !slices.Equal(saved, want) {
				t.Errorf("%s has %q, want %q", export, saved, want)
			}
		})
	}
}

// TestExportedRollouts: a cell of the file has what is known, and nothing where nothing
// is; no text is a formula.
func TestExportedRollouts(t *testing.T) {
	d := newDesk(t)
	d.mixed()
	w := d.ask("/runs/live/rollouts.csv")
	if w.Header().Get("Content-Type") != "text/csv; charset=utf-8" ||
		w.Header().Get("Content-Disposition") != `attachment; filename="live-rollouts.csv"` {
		t.Errorf("%v", w.Header())
	}
	rows, err := csv.NewReader(w.Body).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	cell := func(row int, column string) string { return rows[row][slices.Index(columns, column)] }
	for _, c := range []struct {
		row          int
		column, want string
	}{
		{1, "outcome", "in_flight"}, {1, "reward", ""}, {1, "tokens", ""}, {1, "ended_at", ""}, {1, "task", "'=Mend"},
		{2, "outcome", "failed"}, {2, "failed_class", "sandbox"}, {2, "reward", ""}, {2, "failed_calls", "0"},
		{3, "reward", "0.5"}, {3, "failed_calls", "1"}, {3, "sampled_tokens", "10"},
		{3, "advantage", ""}, {3, "step", ""},
		{4, "reward", "0"}, {4, "stop_reason", "finished"},
	} {
		if got := cell(c.row, c.column); got != c.want {
			t.Errorf("row %d, %s: %q, want %q", c.row, c.column, got, c.want)
		}
	}
	if cell(4, "started_at") == "" || cell(4, "ended_at") == "" {
		t.Error("the times are missing")
	}
	in, err := d.log.Incarnation(t.Context(), "live")
	if err != nil {
		t.Fatal(err)
	}
	d.has(fmt.Sprintf("/runs/live/rollouts.csv?at=%d", in.LastSeq-1), "g000003-0,g000003,'=Mend,failed")
	if past := d.show("/runs/live/rollouts.csv?at=8"); strings.Contains(past, "g000003") ||
		!strings.Contains(past, "g000001-0") {
		t.Errorf("the past:\n%s", past)
	}
}

// TestFilterAddresses: what leads on from a page keeps its filter, and what
// is no filter is refused.
func TestFilterAddresses(t *testing.T) {
	d := newDesk(t)
	d.mixed()
	page := d.show("/runs/live?task=fix&least=0&calls=failed&at=9")
	for _, want := range []string{"/runs/live?at=9&calls=failed&least=0&outcome=failed&task=fix", "/runs/live?at=9",
		"/runs/live/rollouts.csv?at=9&calls=failed&least=0&task=fix"} {
		if !slices.Contains(linksOf(t, page), want) {
			t.Errorf("nothing leads to %s, but %q", want, linksOf(t, page))
		}
	}
	for _, want := range []string{`name="task" value="fix"`, `value="0"`, `value="failed" checked`,
		`name="at" value="9"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the form has no %s", want)
		}
	}
	for _, query := range []string{"least=x", "most=NaN", "least=Inf", "least=2&most=1", "calls=all", "outcome=lost",
		"task=" + strings.Repeat("x", 201)} {
		for _, path := range []string{"/runs/live?", "/runs/live/rollouts.csv?"} {
			if w := d.ask(path + query); w.Code != http.StatusBadRequest {
				t.Errorf("%s%s: %d", path, query, w.Code)
			}
		}
	}
	for _, evil := range evils {
		if page := d.show("/runs/live?task=" + url.QueryEscape(evil)); strings.Contains(page, "<img") ||
			strings.Contains(page, "<svg onload") || strings.Contains(page, "<base") {
			t.Errorf("%s", page)
		}
	}
}
