package dashboard

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// trained opens a run and makes batches with these rewards, each of one rollout.
func (d *desk) trained(run string, change func(*events.RunOpened), rewards ...float64) {
	d.Helper()
	opened := events.RunOpened{Config: servicetest.Config("fix")}
	change(&opened)
	servicetest.OpenRun(d, d.log, run, opened.Config)
	put := func(typ events.Type, entity, ordinal string, data any) {
		servicetest.Append(d, d.log, servicetest.Event(d, run, typ, entity, ordinal, data))
	}
	for i, reward := range rewards {
		step := int64(i + 1)
		group := events.GroupID(step)
		rollout := events.RolloutID(group, 0)
		put(events.GroupOpenedType, group, "0", events.GroupOpened{Task: "fix", Size: 1})
		servicetest.StartRollout(d, d.log, run, rollout, "fix")
		put(events.RolloutFinishedType, rollout, "0", events.RolloutFinished{Task: "fix",
			StopReason: events.StopFinished, Turns: 1, Sampled: 100})
		put(events.RolloutScoredType, rollout, "0", events.RolloutScored{Reward: reward})
		put(events.GroupCompletedType, group, "0", events.GroupCompleted{Task: "fix", Mean: reward,
			Members: []events.Member{{Rollout: rollout, Reward: reward}}})
		put(events.BatchReadyType, "trainer", events.Ordinal(step),
			events.BatchReady{Step: step, Groups: []string{group}, Rollouts: []string{rollout}, RewardMean: reward})
	}
}

// cells are the rows of the table in an element of a page.
func cells(t *testing.T, page, id string) (rows []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(part(t, page, id)))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Data != "tr" {
			continue
		}
		var row []string
		for c := range n.ChildNodes() {
			if c.Data == "th" || c.Data == "td" {
				text := ""
				for d := range c.Descendants() {
					if d.Type == html.TextNode {
						text += d.Data
					}
				}
				row = append(row, text)
			}
		}
		rows = append(rows, strings.Join(row, " | "))
	}
	return rows
}

// TestComparedRuns: the page has the settings that differ and no other, and the curves
// of all runs over one axis.
func TestComparedRuns(t *testing.T) {
	d := newDesk(t)
	if page := d.show("/compare"); !strings.Contains(page, "A comparison takes two runs") {
		t.Errorf("without a run:\n%s", page)
	}
	prompt := strings.Repeat("the same beginning ", 20)
	d.trained("a", func(o *events.RunOpened) { o.Config.SystemPrompt = prompt + "first" }, 0.25, 0.5)
	d.trained("b", func(o *events.RunOpened) {
		o.Config.SystemPrompt = prompt + "other" // as long as the first
		o.Config.Limits.Turns++
		o.Config.Feeds[0].GroupsPerBatch = 7
		o.Config.Tasks[0].Digest = "sha256:other"
	}, 0.75)
	d.trained("c", func(o *events.RunOpened) { o.Config.SystemPrompt = prompt + "first" })
	d.has("/", `href="/compare"`)
	d.has("/runs/a", `href="/compare?run=a"`)
	if w := d.ask("/compare"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/compare?run=c&run=b" {
		t.Errorf("without a choice: %d to %s", w.Code, w.Header().Get("Location"))
	}

	const both = "/compare?run=a&run=b&run="
	page := d.show(both)
	rows := cells(t, page, "settings")
	var names []string
	for _, row := range rows[1:] {
		name, _, _ := strings.Cut(row, " | ")
		names = append(names, name)
	}
	if got := strings.Join(names, " "); rows[0] != "setting | a | b" ||
		got != "feeds.trainer.groups_per_batch limits.turns system_prompt tasks" {
		t.Errorf("settings of %s that differ: %s", rows[0], got)
	}
	if all := strings.Join(rows, "\n"); !strings.Contains(all, "tasks | 1 | 1 (1 not as in a)") ||
		!strings.Contains(all, "groups_per_batch | 8 | 7") {
		t.Errorf("settings:\n%s", all)
	}
	var prompts []string
	for _, row := range rows {
		if values, ok := strings.CutPrefix(row, "system_prompt | "); ok {
			prompts = strings.Split(values, " | ")
		}
	}
	if len(prompts) != 2 || prompts[0] == prompts[1] || len(prompts[0]) > 2*longestSetting {
		t.Errorf("long texts that differ at their ends: %q", prompts)
	}
	for _, want := range []string{`value="a" checked`, `value="b" checked`, `value="c">`,
		`data-curves="/compare/curves?run=a&amp;run=b"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if rows := cells(t, page, "live"); len(rows) != 3 || !strings.HasSuffix(rows[1], "| 2 | 0.500 | 2 | 0 | 200") ||
		!strings.HasSuffix(rows[2], "| 1 | 0.750 | 1 | 0 | 100") {
		t.Errorf("figures: %q", rows)
	}
	d.has("/compare/curves?run=a&run=b",
		`"reward":{"x":[1,2],"series":[{"name":"a","values":[0.25,0.5]},{"name":"b","values":[0.75,null]}]`,
		`"tokens":{"x":[100,200],"series":[{"name":"a","values":[0.25,0.5]},{"name":"b","values":[0.75,null]}]`)
	d.has("/compare?run=a&run=c", "There are none.")
	d.has("/compare?run=c", "Choose a second run")
	d.has("/compare/curves?run=c", "None of these runs has a batch yet")
	d.has("/runs/c/curves", "There is no batch yet", "No rollout is scored yet")
}

// TestRefusedComparisons: what cannot be compared is said.
func TestRefusedComparisons(t *testing.T) {
	d := newDesk(t)
	d.trained("a", func(*events.RunOpened) {})
	for query, want := range map[string]int{
		"run=a&run=none": http.StatusNotFound, "run=a&run=..": http.StatusNotFound, "run=a&run=_": http.StatusNotFound,
		"run=a&run=<script>":                  http.StatusNotFound,
		"run=1&run=2&run=3&run=4&run=5&run=6": http.StatusBadRequest,
	} {
		for _, path := range []string{"/compare?", "/compare/curves?"} {
			w := d.ask(path + query)
			if w.Code != want || strings.Contains(w.Body.String(), "There is no such page") ||
				strings.Contains(w.Body.String(), "<script>") {
				t.Errorf("%s%s: %d: %s", path, query, w.Code, w.Body)
			}
		}
	}
}

// TestOverlaidPoints: each run keeps all of its points, also several at one place.
func TestOverlaidPoints(t *testing.T) {
	values := []float64{1, 2, 3, 4}
	at := func(n int) *float64 { return &values[n] }
	runs := []comparedRun{
		{Name: "a", steps: rewards{sampled: []float64{5, 5, 9}, means: []*float64{at(0), at(1), at(2)}}},
		{Name: "b", steps: rewards{sampled: []float64{5}, means: []*float64{at(3)}}},
	}
	text, err := json.Marshal(overlaid(runs, func(r rewards) []float64 { return r.sampled }))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"x":[5,5,9],"series":[{"name":"a","values":[1,2,3]},{"name":"b","values":[4,null,null]}],"joined":true}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}
