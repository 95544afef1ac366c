package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/export/episode"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// talks is a run with finished rollouts, the last of which is two turns long, and one in flight.
func (d *desk) talks() {
	d.Helper()
	d.openRun()
	d.group(1, "I read the README first", 0, 1)
	d.group(2, "İ look for <b>Clamp</b>\x1b[2J", 0.5, 1)
	d.state(events.GroupOpenedType, "g000003", "0", events.GroupOpened{Task: "fix", Size: 1})
	servicetest.StartRollout(d, d.log, "live", "g000003-0", "fix")
	d.state(events.TurnSampledType, "g000003-0", "0", events.TurnSampled{Content: "The readme, again",
		TokenIDs: []int32{3}, Logprobs: []float32{-1}})
}

// findsOf are the rollouts that a page of finds has.
func findsOf(t *testing.T, page string) (ids []string) {
	t.Helper()
	if !strings.Contains(page, `id="finds"`) {
		return nil
	}
	for _, link := range linksOf(t, part(t, page, "finds")) {
		id, _, _ := strings.Cut(strings.TrimPrefix(link, "/runs/live/rollouts/"), "?")
		ids = append(ids, id)
	}
	return ids
}

// TestSearch: a search has the rollouts whose conversation has the words, whatever their case, of
// those that the filter chooses, and says how many it looked at.
func TestSearch(t *testing.T) {
	d := newDesk(t)
	d.talks()
	all := []string{"g000003-0", "g000002-1", "g000002-0", "g000001-1", "g000001-0"}
	for query, want := range map[string][]string{
		"words=readme":                  {all[0], all[3], all[4]},
		"words=README++FIRST":           all[3:],
		"words=readme&least=1":          all[3:4],
		"words=readme&outcome=failed":   nil,
		"words=clamp":                   all[1:3],
		"words=nowhere":                 nil,
		"words=readme&at=7":             {all[4]},
		"words=readme&behind=g000002-0": all[3:],
	} {
		t.Run(query, func(t *testing.T) {
			page := d.show("/runs/live/search?" + query)
			if got := findsOf(t, page); !slices.Equal(got, want) || strings.Contains(page, "not looked at") ||
				strings.Contains(page, "not be read") {
				t.Errorf("%q, want %q:\n%s", got, want, page)
			}
		})
	}
	d.has("/runs/live/search?words=readme", "3 of 5 rollouts have the words.",
		"I read the <mark>README</mark> first", `value="readme"`)
	page := d.show("/runs/live/search?words=" + url.QueryEscape("<b>clamp"))
	if !strings.Contains(page, "look for <mark>&lt;b&gt;clamp</mark>&lt;/b&gt;") || strings.Contains(page, "\x1b") {
		t.Errorf("the words are not shown as text:\n%s", page)
	}
	if w := d.ask("/runs/live?task=fix&words=readme&page=2"); w.Code != http.StatusSeeOther ||
		w.Header().Get("Location") != "/runs/live/search?task=fix&words=readme" {
		t.Errorf("words in the run's filter lead to %d %s", w.Code, w.Header().Get("Location"))
	}
	for query, status := range map[string]int{
		"": http.StatusBadRequest, "words=+": http.StatusBadRequest,
		"words=" + strings.Repeat("x", longestWords+1): http.StatusBadRequest,
		"words=a&behind=g9-0":                          http.StatusBadRequest,
		"words=a&outcome=odd":                          http.StatusBadRequest,
	} {
		if w := d.ask("/runs/live/search?" + query); w.Code != status {
			t.Errorf("%q: %d", query, w.Code)
		}
	}
}

// TestSearchIsBounded: what a search does not come to, and what it cannot read, it says, and
// another one goes on there.
func TestSearchIsBounded(t *testing.T) {
	d := newDesk(t)
	d.talks()
	d.state(events.RolloutFinishedType, "g000003-0", "0",
		events.RolloutFinished{Task: "fix", Turns: 1, Trajectory: storage.Ref{Key: "runs/live/gone.arrow",
			SHA256: strings.Repeat("1", 64), Size: 9}})
	d.has("/runs/live/search?words=readme", "2 of 5 rollouts", "1 of them could not be read: g000003-0: ")
	d.d.searchTime = 0
	address, visited := "/runs/live/search?words=readme&task=fix", 0
	for address != "" {
		page := d.show(address)
		rest := 4 - visited
		if visited++; rest > 0 != strings.Contains(page, fmt.Sprintf("The %d older ones were not looked at", rest)) ||
			!strings.Contains(page, "it takes too long to read") {
			t.Fatalf("%s:\n%s", address, page)
		}
		address = ""
		for _, link := range linksOf(t, page) {
			if strings.Contains(link, "behind=") {
				address = link
			}
		}
	}
	if visited != 5 {
		t.Errorf("%d searches came to the last rollout", visited)
	}
	rollouts := make([]books.Rollout, searchFinds+1)
	for i := range rollouts {
		rollouts[i].ID = "g000001-0"
	}
	p := &searchPage{Run: "live", Words: "readme", Chosen: len(rollouts)}
	if d.d.look(t.Context(), p, rollouts, &episode.Knowledge{}); p.Looked != searchFinds || p.Rest() != 1 ||
		!strings.Contains(p.Stopped, "finds are shown") {
		t.Errorf("looked at %d, stopped as %q", p.Looked, p.Stopped)
	}
}

// TestArchivesAreNotSearched: of a run whose stream is gone nothing is looked
// at, and the page says so.
func TestArchivesAreNotSearched(t *testing.T) {
	d := newDesk(t)
	run := d.golden("../../tests/golden/testdata/v1.zip")
	path := "/runs/" + run + "/search?words=the"
	d.has(path, " rollouts have the words.", "<mark>")
	if err := d.log.Streams.DeleteRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if w := d.ask(path); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "Nothing was looked at") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// TestFindIn: words are found in thoughts and in the arguments of calls, too, and the address leads
// to the part of the page that has them.
func TestFindIn(t *testing.T) {
	arguments, _ := json.Marshal(map[string]string{"text": "print(\"hi\")\n"})
	calls, _ := json.Marshal([]events.ToolCall{{ID: "a", Name: "edit", Arguments: string(arguments)}})
	tr := &storage.Trajectory{Messages: []storage.Message{{Role: "prompt", Content: "hidden"},
		{Role: "user", Content: "hello"}}}
	for turn := range int32(25) {
		tr.Messages = append(tr.Messages, storage.Message{Role: "assistant", Turn: turn,
			Reasoning: fmt.Sprintf("thought %d!", turn), ToolCalls: string(calls)},
			storage.Message{Role: "tool", Name: "edit", Turn: turn, Content: "done"})
	}
	for words, want := range map[string]find{
		"Thought 3!": {Address: "page=1#m8", Role: "assistant", Match: "thought 3!", Places: 1},
		"thought 22": {Address: "page=2#m46", Role: "assistant", Match: "thought 22", Behind: "!", Places: 1},
		`print("hi")`: {Address: "page=1#m2", Role: "assistant", Before: `edit {"text":"`, Match: `print(\"hi\")`,
			Behind: `\n"}`, Places: 25},
		"done":   {Address: "page=1#m2", Role: "tool edit", Match: "done", Places: 25},
		"hidden": {},
	} {
		if got := findIn(tr, words); got != want {
			t.Errorf("%s: %+v, want %+v", words, got, want)
		}
	}
}
