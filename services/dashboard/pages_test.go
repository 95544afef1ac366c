package dashboard

import (
	"archive/zip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/export/episode"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// desk is a dashboard over a log of its own.
type desk struct {
	*testing.T
	log *eventlog.Log
	d   *Dashboard
}

const secret = "the-token-of-this-test-0123456789"

// tokenText stands for the vocabulary of the built-in policy.
func tokenText(id int32) string { return fmt.Sprintf("text-%d", id) }

func newDesk(t *testing.T) *desk {
	t.Helper()
	log := natstest.Log(t)
	return &desk{t, log, open(t, log)}
}

func open(t testing.TB, log *eventlog.Log) *Dashboard {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	d, err := New(ctx, servicetest.Env(t, log), Access{Token: secret, Open: true}, tokenText)
	if err != nil {
		t.Fatal(err)
	}
	// for tests that look at a page once, on a busy machine too
	d.patience, d.searchTime, d.cardTime = 2*time.Minute, 2*time.Minute, 2*time.Minute
	return d
}

// ask asks for a page.
func (d *desk) ask(path string) *httptest.ResponseRecorder {
	d.Helper()
	w := httptest.NewRecorder()
	d.d.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// show asks for a page that must be there, and gives its text.
func (d *desk) show(path string) string {
	d.Helper()
	w := d.ask(path)
	if w.Code != http.StatusOK {
		d.Fatalf("%s: %d: %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// has checks that a page says all of this.
func (d *desk) has(path string, wants ...string) {
	d.Helper()
	page := d.show(path)
	for _, want := range wants {
		if !strings.Contains(page, want) {
			d.Errorf("%s does not say %q:\n%s", path, want, page)
		}
	}
}

func (d *desk) state(typ events.Type, entity, ordinal string, data any) events.Event {
	d.Helper()
	return servicetest.Append(d, d.log, servicetest.Event(d, "live", typ, entity, ordinal, data))
}

// group lets a group of two run to its end: its rollouts say something and are scored.
func (d *desk) group(n int64, says string, rewards ...float64) {
	d.Helper()
	id := events.GroupID(n)
	d.state(events.GroupOpenedType, id, "0", events.GroupOpened{Task: "fix", Size: len(rewards), PolicyVersion: 3})
	done := events.GroupCompleted{Task: "fix", Estimator: "grpo"}
	for i, reward := range rewards {
		rollout := events.RolloutID(id, i)
		servicetest.StartRollout(d, d.log, "live", rollout, "fix")
		d.state(events.TurnSampledType, rollout, "0", events.TurnSampled{Content: says, TokenIDs: []int32{3, 4, 5},
			Logprobs: []float32{-1, -2, -3}})
		tr := servicetest.Trajectory("live", rollout, "fix")
		tr.Messages[1].Content = says
		finished := servicetest.Finished(d, d.log.Store(), "live", rollout, tr)
		d.state(events.RolloutFinishedType, rollout, "0", finished)
		d.state(events.RolloutScoredType, rollout, "0",
			events.RolloutScored{Reward: reward, Trajectory: finished.Trajectory, TaskDigest: "sha256:fix"})
		done.Members = append(done.Members, events.Member{Rollout: rollout, Reward: reward, Shaped: reward,
			Advantage: reward - 0.5})
		done.Mean += reward / float64(len(rewards))
	}
	d.state(events.GroupCompletedType, id, "0", done)
}

// batch makes a batch of one group.
func (d *desk) batch(step int64, group int64, reward float64) {
	d.Helper()
	id := events.GroupID(group)
	d.state(events.BatchReadyType, "trainer", events.Ordinal(step),
		events.BatchReady{Step: step, Groups: []string{id},
			Rollouts:   []string{events.RolloutID(id, 0), events.RolloutID(id, 1)},
			RewardMean: reward, Staleness: step})
}

func (d *desk) openRun() {
	d.Helper()
	servicetest.OpenRun(d, d.log, "live", servicetest.Config("fix"))
}

// golden restores a recorded run.
func (d *desk) golden(path string) (run string) {
	d.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		d.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			d.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			d.Fatal(err)
		}
		if err := d.log.Store().Put(d.Context(), f.Name, data); err != nil {
			d.Fatal(err)
		}
		if parts := strings.Split(f.Name, "/"); parts[0] == "runs" {
			run = parts[1]
		}
	}
	sealed, err := recovery.Stored(d.Context(), d.log.Store(), run)
	if err != nil {
		d.Fatal(err)
	}
	if _, err := recovery.Restore(d.Context(), d.log, run, sealed, nil); err != nil {
		d.Fatal(err)
	}
	return run
}

// TestGoldenRun shows a recorded run, all pages of it, also from its archive alone.
func TestGoldenRun(t *testing.T) {
	d := newDesk(t)
	run := d.golden("../../tests/golden/testdata/v1.zip")
	d.has("/", ">"+run+"<", "closed")
	here := "/runs/" + run
	in, err := d.log.Incarnation(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the whole run is folded", func() bool {
		return strings.Contains(d.show(here),
			fmt.Sprintf(`value="%d"`, in.LastSeq))
	})
	d.has(here, "trained", "g000001-0", "Behaviour by policy version", "Mean reward by step")
	d.has(here+"/groups/g000001", "g000001-0", "estimator")
	d.has(here+"/rollouts/g000001-0", "Timeline", "Turn 0", "scored", "verifier")
	links := linksOf(t, d.show(here+"/rollouts/g000001-0"))
	followed := 0
	for _, link := range links {
		if strings.Contains(link, "/messages/") {
			d.show(link)
			followed++
		}
	}
	if followed == 0 {
		t.Error("no turn's tokens can be looked at")
	}
	d.has(here+"/curves", `"reward":{"x":[1,`, `"throughput"`)
	d.has("/plane", "version")
	if early := d.show(here + "?at=40"); !strings.Contains(early, "as it was at event 40") ||
		strings.Contains(early, "Change the run") {
		t.Errorf("event 40:\n%s", early)
	}
}

// linksOf lists where a page leads to.
func linksOf(t *testing.T, page string) (links []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			if n.Data == "a" && a.Key == "href" {
				links = append(links, a.Val)
			}
		}
	}
	return links
}

// TestMaskedBy: of a recorded rollout the trajectory says which turns are masked,
// and its prompts are none.
func TestMaskedBy(t *testing.T) {
	e := &episode.Episode{Recorded: true, Trajectory: &storage.Trajectory{Masked: map[int32]string{1: "titles"}}}
	for want, messages := range map[string][]storage.Message{
		"titles": {{Role: "assistant", Segment: 1}},
		"":       {{Role: "assistant"}, {Role: "user", Segment: 1}, {Role: "prompt", Segment: 1}},
	} {
		for _, m := range messages {
			if got := maskedBy(e, m); got != want {
				t.Errorf("%+v: %q, want %q", m, got, want)
			}
		}
	}
}

// TestLiveRun: what happens in a run is on its page, as of now and as of before.
func TestLiveRun(t *testing.T) {
	d := newDesk(t)
	d.has("/", "There is no run yet")
	d.openRun()
	d.has("/", `href="/runs/live"`, "open")
	d.has("/runs/live", "No rollout has started", "1 tasks")
	d.group(1, "first", 1, 0)
	before, err := d.log.Incarnation(t.Context(), "live")
	if err != nil {
		t.Fatal(err)
	}
	d.batch(1, 1, 0.5)
	d.state(events.BatchConsumedType, "trainer", "c1", events.BatchConsumed{Step: 1})
	d.state(events.GroupOpenedType, "g000002", "0", events.GroupOpened{Task: "fix", Size: 1})
	servicetest.StartRollout(d, d.log, "live", "g000002-0", "fix")
	d.state(events.TurnSampledType, "g000002-0", "0", events.TurnSampled{NewSegment: true, TokenIDs: []int32{4, 5},
		Logprobs:     []float32{-1, -1},
		Conversation: &events.Conversation{Tree: "beside", Rule: "titles", Masked: true}})
	d.state(events.TurnSampledType, "g000002-0", "1", events.TurnSampled{Turn: 1, NewSegment: true,
		TextOnly: true, PolicyVersion: -1,
		Conversation: &events.Conversation{Tree: "beside", Rule: "small", Masked: true, Model: "small-1"}})
	d.state(events.RolloutFailedType, "g000002-0", "0",
		events.RolloutFailed{Stage: events.StageTools, Class: "sandbox", Message: "no room"})
	d.state(events.RunPausedType, "live", "p", events.RunPaused{Reason: "lunch"})
	d.has("/runs/live", "paused", "lunch", "failed: sandbox", "0.500", "in flight")
	d.has("/runs/live?outcome=failed", "g000002-0")
	if page := d.show("/runs/live?outcome=failed"); strings.Contains(part(t, page, "rollouts"), "g000001-0") {
		t.Error("a trained rollout is among the failed ones")
	}
	d.has("/runs/live/rollouts/g000002-0", "failed at tools: sandbox: no room", "2 sampled", "answered by small-1")
	titles := "/runs/live/rollouts/g000002-0/messages/1/tokens"
	d.has(titles, "<small>0.368</small>", "not trained on: rule titles of the run's conversations")
	if page := d.show(titles); strings.Count(page, `<li class="masked">`) != 2 {
		t.Errorf("tokens of a masked conversation:\n%s", page)
	}
	d.has("/runs/live/rollouts/g000001-0", "advantage", "step 1", "first")
	trained := "/runs/live/rollouts/g000001-0/messages/1/tokens"
	d.has(trained, "0.368")
	if page := d.show(trained); strings.Contains(page, "masked") || strings.Contains(page, "not trained on") {
		t.Errorf("tokens that are trained on:\n%s", page)
	}
	d.has("/runs/live/curves", `{"name":"mean reward","values":[0.5]}`, `"staleness, versions","values":[1]`)
	past := fmt.Sprintf("/runs/live?at=%d", before.LastSeq)
	if page := d.show(past); strings.Contains(page, "paused") || strings.Contains(page, "g000002") ||
		!strings.Contains(page, "g000001-1") {
		t.Errorf("the past:\n%s", page)
	}
	d.has(fmt.Sprintf("/runs/live/curves?at=%d", before.LastSeq), `"backlog"`, `"wait for a batch","values":[2]`)
	d.has(fmt.Sprintf("/runs/live/rollouts/g000001-0?at=%d", before.LastSeq-6), "as it was at event")
	for _, path := range []string{"/nothing", "/runs/none", "/runs/..", "/runs/live/rollouts/g9-9",
		"/runs/live/groups/none", "/runs/live/rollouts/g000001-0/messages/99",
		"/runs/live/rollouts/g000001-0/messages/x/tokens", "/runs/_"} {
		if w := d.ask(path); w.Code != http.StatusNotFound && w.Code/100 != 3 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for _, path := range []string{"/runs/live?at=-1", "/runs/live?at=x", "/runs/live?outcome=lost", "/?page=x"} {
		if w := d.ask(path); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// part is the text of an element of a page.
func part(t *testing.T, page, id string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, `<div id="`+id+`"`)
	if !ok {
		t.Fatalf("the page has no %s", id)
	}
	text, _, _ := strings.Cut(rest, "</section>")
	return text
}

// evils are texts that a model may write.
var evils = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`,
	`<svg onload=alert(1)><script>1</script></svg>`, `javascript:alert(1)`,
	"\x1b[2J\x1b]0;x\x07\u202e\u009b1m\r\b\x00", `</pre></article></main><h1>Rondo</h1>`, `{{.Title}}`, `<!--`, `]]>`,
	`</title><base href=//evil>`,
}

// TestHostileTexts: whatever a rollout holds, its pages have the elements, attributes and
// links of a harmless one.
func TestHostileTexts(t *testing.T) {
	shape := func(says string) (shapes []string, text string) {
		d := newDesk(t)
		cfg := servicetest.Config("fix")
		cfg.SystemPrompt = "prompt " + says
		servicetest.OpenRun(d, d.log, "live", cfg)
		d.state(events.GroupOpenedType, "g000001", "0", events.GroupOpened{Task: "fix" + says, Size: 1})
		started := events.RolloutStarted{Group: "g000001", Task: "fix" + says}
		d.state(events.RolloutStartedType, "g000001-0", "0", started)
		tr := servicetest.Trajectory("live", "g000001-0", "fix"+says)
		tr.Messages[1].Content, tr.Messages[1].Reasoning, tr.Messages[1].FinishReason = "said "+says, "thought "+says,
			says
		arguments, _ := json.Marshal(map[string]string{"old_string": says, "new_string": says, "k" + says: says})
		calls, _ := json.Marshal([]events.ToolCall{{ID: "a", Name: "n" + says, Arguments: string(arguments)},
			{ID: "b", Name: "b", Arguments: says}})
		tr.Messages[1].ToolCalls = string(calls)
		tr.Messages = append(tr.Messages, storage.Message{Index: 2, Role: "tool", Name: "n" + says, ToolCallID: "a",
			Content: "answer " + says, PolicyVersion: -1})
		finished := servicetest.Finished(t, d.log.Store(), "live", "g000001-0", tr)
		finished.StopReason = "s" + says
		d.state(events.RolloutFinishedType, "g000001-0", "0", finished)
		log := servicetest.Blob(t, d.log.Store(), []byte("FAILED test_a "+says))
		d.state(events.RolloutScoredType, "g000001-0",
			"0", events.RolloutScored{Reward: 1, Trajectory: finished.Trajectory,
				Components: map[string]float64{"c" + says: 1}, Flags: []string{"f" + says}, Log: &log,
				Tests: &grade.Tests{Graded: 9, Held: 2, Unmet: []grade.UnmetTest{{Name: "test_" + says, State: "failed",
					Regression: true, Message: "one\n" + says}}, BadEnd: true},
				Forfeit: &events.Forfeit{Class: "k" + says, Message: "m" + says}})
		d.state(events.RunPausedType, "live", "p", events.RunPaused{Reason: "r" + says})
		d.state(events.RolloutStartedType, "g000001-1", "0", started)
		d.state(events.TurnSampledType, "g000001-1", "0",
			events.TurnSampled{NewSegment: true, Content: "beside " + says, TokenIDs: []int32{3},
				Logprobs: []float32{-1}, ToolCalls: []events.ToolCall{{ID: "a", Name: "n" + says, Arguments: says}}})
		d.state(events.MarkRecordedType, "g000001-0", "m", events.MarkRecorded{Marked: true, Text: "comment " + says})
		for _, path := range []string{"/", "/runs/live", "/runs/live/groups/g000001", "/runs/live/rollouts/g000001-0",
			"/runs/live/rollouts/g000001-0/messages/1", "/runs/live/rollouts/g000001-0/messages/1/tokens",
			"/runs/live/search?words=said",
			"/runs/live/rollouts/g000001-0/siblings", "/runs/live/file"} {
			page := d.show(path)
			shapes = append(shapes, path+": "+shapeOf(t, page))
			text += page
		}
		return shapes, text
	}
	want, pages := shape("harmless")
	if !strings.Contains(pages, "<pre>FAILED test_a harmless</pre>") {
		t.Error("no page has what the verifier printed")
	}
	for _, part := range []string{"2 of the 9 tests that decide ended as they must. But the test program itself",
		`<th scope="row">test_harmless</th><td>failed, passed before</td>`,
		"<pre>one\nharmless</pre>", "6 more did not."} {
		if !strings.Contains(pages, part) {
			t.Errorf("no page has %s", part)
		}
	}
	for _, evil := range evils {
		t.Run(evil, func(t *testing.T) {
			got, text := shape(evil)
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("the page is another one:\n%s\nthan:\n%s", got[i], want[i])
				}
			}
			for _, r := range text {
				if r < ' ' && r != '\n' && r != '\t' || r == '\u202e' || r == '\u009b' {
					t.Fatalf("the page has the character %U", r)
				}
			}
		})
	}
}

// shapeOf is a page without its texts, and without the values of its attributes but for addresses.
func shapeOf(t *testing.T, page string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		b.WriteString("<" + n.Data)
		for _, a := range n.Attr {
			b.WriteString(" " + a.Key)
			if a.Key == "href" || a.Key == "src" || a.Key == "action" {
				b.WriteString("=" + a.Val)
			}
		}
		b.WriteString(">")
	}
	return b.String()
}

// TestLongMessage: a message of 10 MB is shown in parts, and no page is much longer than one.
func TestLongMessage(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	long := strings.Repeat("ä<b>", 300_000) // some twenty parts of a page
	d.group(1, long, 1, 0)
	for _, path := range []string{"/runs/live", "/runs/live/rollouts/g000001-0",
		"/runs/live/rollouts/g000001-0/messages/1", "/runs/live/rollouts/g000001-0/messages/1?page=9",
		"/runs/live/rollouts/g000001-0?at=5"} {
		if page := d.show(path); len(page) > 8*partText {
			t.Errorf("%s has %d bytes", path, len(page))
		}
	}
	d.has("/runs/live/rollouts/g000001-0", "Show all of it")
	d.has("/runs/live/rollouts/g000001-0/messages/1?page=99999", "ä&lt;b&gt;")
}

// TestHeaders: pages allow no script but the dashboard's own.
func TestHeaders(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	for _, path := range []string{"/", "/runs/live", "/plane", "/nothing", "/assets/app.js", "/runs/live/curves"} {
		h := d.ask(path).Header()
		if policy := h.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'self';") ||
			strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %q", path, policy)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s may be taken for something else", path)
		}
	}
	root, err := html.Parse(strings.NewReader(d.show("/runs/live")))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			outside := strings.Contains(a.Val, "//") && !strings.Contains(a.Key, "xmlns")
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") || outside {
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			}
		}
		if n.Data == "script" && n.FirstChild != nil || n.Data == "style" {
			t.Errorf("<%s> has text", n.Data)
		}
	}
}

// TestChangesNeedTheToken: nobody changes a run without the token, and with it the intake is asked.
func TestChangesNeedTheToken(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	act := func(form url.Values, header string) int {
		r := httptest.NewRequest(http.MethodPost, "/runs/live/state", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		d.d.ServeHTTP(w, r)
		return w.Code
	}
	for name, c := range map[string]struct {
		form   url.Values
		header string
		want   int
	}{
		"no token":        {url.Values{"action": {"pause"}}, "", 403},
		"empty token":     {url.Values{"action": {"pause"}, "token": {""}}, "", 403},
		"another token":   {url.Values{"action": {"pause"}, "token": {secret + "x"}}, "", 403},
		"half of it":      {url.Values{"action": {"pause"}, "token": {secret[:10]}}, "", 403},
		"another header":  {url.Values{"action": {"pause"}}, "Bearer x", 403},
		"unknown action":  {url.Values{"action": {"delete"}, "token": {secret}}, "", 404},
		"too long a form": {url.Values{"action": {"pause"}, "token": {strings.Repeat("x", 2*maxForm)}}, "", 400},
	} {
		t.Run(name, func(t *testing.T) {
			if got := act(c.form, c.header); got != c.want {
				t.Errorf("answered %d, want %d", got, c.want)
			}
		})
	}
	if in, err := d.log.Incarnation(t.Context(), events.Catalogue); err != nil || in.LastSeq != 1 {
		t.Errorf("something was stated: %+v, %v", in, err)
	}
	w := httptest.NewRecorder()
	d.d.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/runs/live/state?action=pause&token="+secret, nil))
	if w.Code == http.StatusSeeOther {
		t.Error("a link changes a run")
	}
}
