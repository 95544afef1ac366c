package dashboard

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// asked is a question that is answered by clicks, from the first page on.
type asked struct {
	*site
	clicks int
}

func (s *site) ask() *asked {
	s.Helper()
	s.do(chromedp.Navigate(s.base))
	s.is(`!!document.querySelector("#runs")`)
	return &asked{s, 0}
}

// follow clicks on a link.
func (a *asked) follow(selector string) *asked {
	a.Helper()
	a.click(selector)
	a.clicks++
	return a
}

// answers waits for the answer, and holds the guide to its number of clicks.
func (a *asked) answers(clicks int, expression string) {
	a.Helper()
	a.is(expression)
	if a.clicks != clicks {
		a.Errorf("%d clicks, and docs/guide/inspection.md says %d", a.clicks, clicks)
	}
}

// TestFiveQuestions answers what users ask most, with the clicks that docs/guide/inspection.md
// counts. Each page on the way is whole for those who use it with a keyboard or a screen reader, in
// light and dark and on a phone.
func TestFiveQuestions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.step(1)
	s.step(2)
	s.step(3)
	cfg := servicetest.Config("mend-clamp")
	cfg.Sampling.Temperature = 0.7
	servicetest.OpenRun(s, s.log, "cooler", cfg)
	s.do(chromedp.EmulateViewport(1200, 900))
	const says = `document.querySelector("main").textContent.includes(%q)`

	s.ask().follow(`a[href="/runs/live"]`).follow(`a[href="/runs/live/rollouts/g000002-3"]`).
		answers(2, fmt.Sprintf(says, "not ok 2 upper bound")+" && "+fmt.Sprintf(says, "1 of the 2 tests that decide"))
	s.ask().follow(`a[href="/runs/live"]`).follow(`a[href="/runs/live/tasks"]`).answers(2,
		`document.querySelector("#tasks tbody tr").children.length === 10 && document.querySelector("#tasks").textContent.includes("mend-clamp")`)
	s.axe("tasks")
	s.ask().follow(`a[href="/compare"]`).answers(1, `location.search === "?run=cooler&run=live" && `+points+` === 3`)
	s.ask().follow(`a[href="/runs/live"]`).follow(`a[href="/runs/live/rollouts/g000002-3"]`).follow(
		`a[href$="/siblings"]`).
		answers(3, `document.querySelectorAll(".beside article").length === 2 && document.querySelector(".beside").textContent.includes("I guess.") && document.querySelector(".beside").textContent.includes("I look at the comparison first.")`)
	s.axe("siblings")
	s.is(`document.title !== "taken over" && document.querySelectorAll("main script, main img").length === 0`)
	s.ask().follow(`a[href="/compare"]`).answers(1,
		`[...document.querySelectorAll("#settings tbody tr")].some((r) => r.textContent.includes("sampling.temperature") && r.textContent.includes("0.7"))`)

	s.ask().follow(`a[href="/runs/live"]`).follow(`a[href="/runs/live/file"]`).answers(2,
		fmt.Sprintf(says, "temperature: 1"))
	s.axe("a run file")
	paths := []string{"/", "/runs/live/tasks", "/runs/live/rollouts/g000002-3/siblings", "/runs/live/file",
		"/runs/live/groups/g000002"}
	s.click(`#theme`)
	for _, path := range paths {
		s.do(chromedp.Navigate(s.base + path))
		s.is(`getComputedStyle(document.body).backgroundColor === "rgb(15, 21, 27)" && !!document.querySelector("h1")`)
		s.axe(path + " in the dark")
	}
	s.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	for _, path := range paths {
		s.do(chromedp.Navigate(s.base + path))
		s.is(`!!document.querySelector("h1") && document.documentElement.scrollWidth <= 360`)
	}
}

// TestHomeInABrowser: the first page shows a run's curve as the run goes on, and says at
// once when a run is paused.
func TestHomeInABrowser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.step(1)
	s.step(2)
	s.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(s.base))
	s.is(`document.querySelector("svg.spark").getAttribute("aria-label").includes("steps 1 to 2") && !document.querySelector("#waits-h")`)
	s.axe("the first page")
	s.picture("dashboard-home.png")
	s.step(3)
	s.is(`document.querySelector("svg.spark").getAttribute("aria-label").includes("steps 1 to 3")`)
	s.state(events.RunPausedType, "live", "p", events.RunPaused{Reason: "no success in 20 groups"})
	s.is(`!document.querySelector("svg.spark") && document.querySelector("#waits-h").parentElement.textContent.includes("no success in 20 groups")`)
	s.axe("the first page with what waits")
}

// TestMarkInABrowser: somebody marks a rollout with the token, finds it among the
// marked ones, and saves these.
func TestMarkInABrowser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.step(1)
	s.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(s.base+"/runs/live/rollouts/g000001-1"))
	s.is(`!!document.querySelector("#mark-h")`)
	s.axe("a rollout that can be marked")
	say := func(action, text string) {
		s.do(chromedp.Navigate(s.base + "/runs/live/rollouts/g000001-1"))
		s.is(`!!document.querySelector("#mark-h")`)
		s.do(chromedp.Evaluate[chromedp.Void](
			fmt.Sprintf(`(() => { document.querySelector("#text").value = %q; document.querySelector("#token").value = %q; })()`, text, token)))
		s.click("button[value=" + action + "]")
	}
	leaked := "gh" + "p_9fK2mQ7xLc4VtB8nRz5WyH3jPd6GsA1eUo0X"
	say("mark", "it printed "+leaked)
	s.is(`document.querySelector("h1").textContent === "Conflict" && document.body.textContent.includes("github-pat") && !document.body.textContent.includes("` + leaked + `")`)
	say("mark", " guesses <b> ")
	s.is(`location.hash === "#mark-h" && document.querySelector(".facts").textContent.includes("marked: guesses <b>") && !!document.querySelector("button[value=unmark]")`)
	s.do(chromedp.Navigate(s.base + "/runs/live"))
	s.is(points + ` === 1`)
	s.do(chromedp.Evaluate[chromedp.Void](`(() => { const marked = document.querySelector("input[name=marked]"); marked.checked = true; marked.form.requestSubmit(); })()`))
	s.is(`location.search.includes("marked=yes") && document.querySelector("#rollouts").textContent.includes("1 rollouts") && document.querySelector("#rollouts tbody .mark").title === "guesses <b>"`)
	s.is(`new URL(document.querySelector("a[download]").href).search.includes("marked=yes")`)
	s.axe("the marked rollouts")
	say("unmark", "")
	s.is(`document.querySelector(".facts").textContent.includes("no longer marked") && !document.querySelector("button[value=unmark]")`)
	s.do(chromedp.Navigate(s.base + "/runs/live?marked=yes"))
	s.is(`document.querySelector("#rollouts").textContent.includes("0 rollouts")`)
	marks := servicetest.All(t, s.log, "live", events.MarkRecordedType)
	if said, err := events.Data[events.MarkRecorded](marks[0]); err != nil || len(marks) != 2 ||
		said.Text != "guesses <b>" {
		t.Errorf("%d marks, %+v, %v", len(marks), said, err)
	}
}

// TestAnswerGrowsInABrowser: the page of a rollout in flight takes up what is sampled, stays as it
// was folded, and asks no more behind the outcome.
func TestAnswerGrowsInABrowser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const id = "g000001-0"
	s.state(events.GroupOpenedType, "g000001", "0", events.GroupOpened{Task: "mend-clamp", Size: 1})
	servicetest.StartRollout(s, s.log, "live", id, "mend-clamp")
	piece := func(offset int) {
		s.state(events.PieceSampledType, id, fmt.Sprintf("0-%d", offset),
			events.PieceSampled{Prompt: "p", Offset: offset, TokenIDs: []int32{3}, Logprobs: []float32{-0.5},
				VersionSpans: []events.VersionSpan{{End: 1}}, StartedAt: time.Now().UTC(), LatencyMS: 900})
	}
	piece(0)
	s.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(s.base+"/runs/live/rollouts/"+id))
	s.is(`document.querySelectorAll(".tokens li").length === 1`)
	s.axe("an answer under way")
	piece(1)
	s.is(`document.querySelectorAll(".tokens li").length === 2`)
	s.state(events.TurnSampledType, id, "0", events.TurnSampled{NewSegment: true, Content: "whole",
		Reasoning: &events.Reasoning{Text: "thought"}, TokenIDs: []int32{3, 3}, Logprobs: []float32{-0.5, -0.5}})
	s.is(`!document.querySelector(".tokens") && document.querySelector("#turns").textContent.includes("whole") && document.querySelector("#turns details").open`)

	// Behind its outcome the page asks no more. What somebody has folded
	// takes up the last copy later.
	s.do(chromedp.Evaluate[chromedp.Void](`{
		window.asked = window.copies = window.cleared = 0;
		const [ask, parse, clear] = [fetch, DOMParser.prototype.parseFromString, clearInterval];
		fetch = (...of) => { asked++; return ask(...of); };
		DOMParser.prototype.parseFromString = function (...of) { copies++; return parse.apply(this, of); };
		clearInterval = (beat) => { cleared++; clear(beat); };
		document.querySelector("#turns details").open = false;
	}`))
	s.state(events.RolloutFailedType, id, "0", events.RolloutFailed{Stage: events.StageGenerator,
		Class: events.ClassDeadline})
	s.is(`document.querySelector("#live").textContent.includes("failed at generator") && (asked = copies = 0) === 0`)
	s.is(`copies > 1 && asked === 0 && cleared === 0`)
	s.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#turns details").open = true`))
	s.is(`cleared === 1 && asked === 0 && !document.querySelector("#live").dataset.every`)
}
