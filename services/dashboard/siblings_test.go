package dashboard

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// parted is a group of four: the last three begin as the first one does. The second goes another
// way in its second turn, the third ends before, the fourth says the same.
func (d *desk) parted() {
	d.Helper()
	d.openRun()
	d.state(events.GroupOpenedType, "g000001", "0", events.GroupOpened{Task: "fix", Size: 4})
	for i, turns := range [][]string{{"look", "guess"}, {"look", "run <b>the tests</b>"}, {"look"}, {"look", "guess"}} {
		id := events.RolloutID("g000001", i)
		servicetest.StartRollout(d, d.log, "live", id, "fix")
		tr := servicetest.Trajectory("live", id, "fix")
		answer := tr.Messages[1]
		tr.Messages = tr.Messages[:1]
		for n, says := range turns {
			d.state(events.TurnSampledType, id, events.Ordinal(n),
				events.TurnSampled{Turn: n, NewSegment: n == 0, Content: says, TokenIDs: []int32{3},
					Logprobs: []float32{-1}})
			m := answer
			m.Turn, m.Content = int32(n), says
			tr.Messages = append(tr.Messages, m)
		}
		finished := servicetest.Finished(d, d.log.Store(), "live", id, tr)
		d.state(events.RolloutFinishedType, id, "0", finished)
		if i == 2 {
			d.state(events.RolloutFailedType, id, "0",
				events.RolloutFailed{Stage: events.StageScorer, Class: "sandbox"})
			continue
		}
		scored := events.RolloutScored{Reward: []float64{0, 1, 0, 0.5}[i], Trajectory: finished.Trajectory,
			TaskDigest: "sha256:fix"}
		scored.Tests = &grade.Tests{Graded: 2, Held: 2}
		if i == 0 {
			scored.Tests = &grade.Tests{Graded: 2, Held: 1,
				Unmet: []grade.UnmetTest{{Name: "test_<i>low</i>", State: "failed", Message: "1 != 2"}}}
		}
		d.state(events.RolloutScoredType, id, "0", scored)
	}
}

// TestSiblings: beside a rollout stands the sibling with the best reward, from the turn in which
// they part, or the one that is chosen.
func TestSiblings(t *testing.T) {
	d := newDesk(t)
	d.parted()
	const page = "/runs/live/rollouts/g000001-0/siblings"
	d.has("/runs/live/rollouts/g000001-0", `href="`+page+`"`)
	text := d.show(page)
	for _, want := range []string{
		"Turn 1, the first in which they differ", "<pre>guess</pre>", "run &lt;b&gt;the tests&lt;/b&gt;",
		`with=g000001-1" aria-current="true"`, "reward 0<", "reward 1<",
		"test_&lt;i&gt;low&lt;/i&gt;: failed", `href="/runs/live/rollouts/g000001-1#m`, "1 of the 2 tests",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "with=g000001-0") {
		t.Error("the rollout is beside itself")
	}
	d.has(page+"?with=g000001-2", "It had ended before.", "failed at scorer: sandbox")
	same := d.show(page + "?with=g000001-3")
	if !strings.Contains(same, `<td class="n">never</td>`) || strings.Contains(same, "the first in which they differ") {
		t.Errorf("two that say the same:\n%s", same)
	}
	for _, path := range []string{page + "?with=g000001-0", page + "?with=g000002-0", page + "?with=*",
		"/runs/live/rollouts/g000009-0/siblings"} {
		if w := d.ask(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	// As of the start of the second rollout there is one sibling, which has said nothing.
	starts := servicetest.All(t, d.log, "live", events.RolloutStartedType)
	past := d.show(fmt.Sprintf("%s?at=%d", page, starts[1].Seq))
	if !strings.Contains(past, "in flight") || strings.Contains(past, "g000001-2") {
		t.Errorf("the past:\n%s", past)
	}
	d.has("/runs/live/groups/g000001", "3 scored: 3 different rewards, from 0 to 1",
		`points="0.0,34.0 80.0,18.0 160.0,2.0"`)
}

// TestSiblingsInArchives: of a run whose stream is gone no rollouts are compared, as that would
// read its archive once for each, and the page says what does.
func TestSiblingsInArchives(t *testing.T) {
	d := newDesk(t)
	run := d.golden("../../tests/golden/testdata/v1.zip")
	path := "/runs/" + run + "/rollouts/g000001-0/siblings"
	d.has(path, "Beside g000001-0")
	if err := d.log.Streams.DeleteRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if w := d.ask(path); w.Code != http.StatusNotFound ||
		!strings.Contains(w.Body.String(), "`rondo explain rollout "+run+" g000001-0` compares them.") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	for _, path := range []string{"/runs/none/rollouts/g000001-0/siblings", "/runs/IN/rollouts/g000001-0/siblings",
		"/runs/" + run + "/rollouts/*/siblings"} {
		if w := d.ask(path); w.Code != http.StatusNotFound ||
			!strings.Contains(w.Body.String(), "There is no such page") {
			t.Errorf("%s: %d: %s", path, w.Code, w.Body)
		}
	}
}

// TestTasksPage: the page says of each task whether it teaches, and can be
// limited to those that do not.
func TestTasksPage(t *testing.T) {
	d := newDesk(t)
	servicetest.OpenRun(t, d.log, "live", servicetest.Config("fix", "idle<b>"))
	d.group(1, "first", 0.5, 0.5)
	d.group(2, "second", 1, 1)
	d.has("/runs/live", `href="/runs/live/tasks"`)
	d.has("/runs/live/tasks", "all: 2", "no signal: all rewards of a group are equal", "not tried yet", "idle&lt;b&gt;",
		`href="/runs/live?task=fix"`, `<td class="n">0.750</td><td class="n">0.500</td><td class="n">1</td>`)
	only := part(t, d.show("/runs/live/tasks?remark=not+tried+yet"), "tasks")
	if strings.Contains(only, "task=fix\"") || !strings.Contains(only, "idle") {
		t.Errorf("one remark:\n%s", only)
	}
	d.group(3, "third", 1, 0)
	if page := d.show("/runs/live/tasks"); strings.Contains(part(t, page, "tasks"), "no signal") {
		t.Errorf("the task gives signal:\n%s", page)
	}
	if w := d.ask("/runs/live/tasks?remark=x"); w.Code != http.StatusBadRequest {
		t.Errorf("%d", w.Code)
	}
}
