package dashboard

import (
	"bytes"
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/pipeline/presence"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// tree stores files as a snapshot, or as a change that brings them.
func tree(t *testing.T, store storage.Store, files fstest.MapFS) *storage.Ref {
	t.Helper()
	var b bytes.Buffer
	if err := sandbox.PackTo(&b, files); err != nil {
		t.Fatal(err)
	}
	ref := servicetest.Blob(t, store, b.Bytes())
	return &ref
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }

// edited opens a run whose rollout edits a file, and leaves one that a hostile model has written.
func (r *run) edited() {
	r.Helper()
	cfg := servicetest.Config("mend-clamp")
	before := "#!/bin/sh\n# clamp VALUE LOW HIGH\nv=$1\nif [ \"$v\" -lt \"$2\" ]; then v=$2; fi\nif [ \"$v\" -lt \"$3\" ]; then v=$3; fi\necho \"$v\"\n"
	cfg.Tasks[0].Snapshot = *tree(r.T, r.log.Store(), fstest.MapFS{"clamp.sh": file(before)})
	servicetest.OpenRun(r, r.log, "edits", cfg)
	put := func(typ events.Type, ordinal string, data any) {
		servicetest.Append(r, r.log, servicetest.Event(r, "edits", typ, "g000001-0", ordinal, data))
	}
	servicetest.StartRollout(r, r.log, "edits", "g000001-0", "mend-clamp")
	put(events.TurnSampledType, "0", events.TurnSampled{Content: "I turn the comparison round.",
		ToolCalls: []events.ToolCall{{ID: "a", Name: "search_replace", Arguments: "{}"}}, TokenIDs: []int32{3},
		Logprobs:   []float32{-1},
		NewSegment: true, StartedAt: time.Now().UTC(), LatencyMS: 900})
	after := tree(r.T, r.log.Store(),
		fstest.MapFS{"clamp.sh": file("#!/bin/sh\n# clamp VALUE LOW HIGH\nv=$1\nif [ \"$v\" -lt \"$2\" ]; then v=$2; fi\nif [ \"$v\" -gt \"$3\" ]; then v=$3; fi\necho \"$v\"\n"),
			"notes.html": file(says + "\n")})
	put(events.ToolsCompletedType, "0", events.ToolsCompleted{Workspace: after, Runner: "r", Isolation: "namespaces",
		Filesystem: "overlay", Results: []events.ToolResult{{CallID: "a", Name: "search_replace", Content: "ok"}}})
}

// spoken has a runner and two generators say how they are, and replicas what they serve.
func (r *run) spoken() {
	r.Helper()
	put := func(typ events.Type, ordinal string, data any) {
		servicetest.Append(r, r.log, servicetest.Event(r, events.Catalogue, typ, "small", ordinal, data))
	}
	servers := []presence.Server{}
	for n := range 6 {
		url, version := fmt.Sprintf("http://10.0.0.%d:8000", n+1), int64(12)
		state := []string{presence.Active, presence.Active, presence.Active, presence.Active,
			presence.Rests, presence.Open}[n]
		servers = append(servers, presence.Server{URL: url, State: state, Engine: "vllm", InFlight: 20 - 3*n,
			Allowed: 32, Used: time.Now(), Failures: 5 * (n / 5)})
		put(events.WeightsActivatedType, fmt.Sprintf("a%d", n),
			events.WeightsActivated{Version: version - int64(n/3), Replica: url, Lost: n == 5})
	}
	for version := range int64(12) {
		files := []events.WeightsFile{{Name: "model.safetensors",
			Blob: storage.Ref{Key: "weights/small/files/x",
				SHA256: fmt.Sprintf("%064d", version), Size: 1_400_000_000}}}
		put(events.WeightsSubmittedType, events.Ordinal(100+version),
			events.WeightsSubmitted{Version: version + 1, Run: "live", ThroughStep: version + 1, Files: files})
		put(events.WeightsPublishedType, events.Ordinal(version+1),
			events.WeightsPublished{Policy: "small", Version: version + 1, Run: "live", ThroughStep: version + 1})
	}
	boxes := []presence.Sandbox{}
	for n := range 24 {
		boxes = append(boxes, presence.Sandbox{Run: "live",
			Rollout: events.RolloutID(events.GroupID(int64(n/4+1)), n%4), Working: n < 9,
			Since: time.Now().Add(-time.Duration(n) * time.Second)})
	}
	speak := func(service, name string, report presence.Report) {
		go presence.Speak(r.Context(), r.log.Conn(), service, name, func() presence.Report { return report })
	}
	speak("toolrunner", "a41f09c2be77", presence.Report{Instance: "worker-1",
		Runner: &presence.Runner{Slots: 16, Capacity: 128, Working: 9, Held: 15, CPUs: 16, MemoryMB: 64_000,
			Labels: []string{"go"}, Sandboxes: boxes}})
	speak("generator", "g1", presence.Report{Instance: "head", Waiting: 2, Servers: servers})
}

// evaluated makes an evaluation of ten tasks, of which so many pass.
func (r *run) evaluated(name string, pass int) {
	r.Helper()
	cfg := servicetest.Config()
	cfg.Feeds, cfg.Epochs, cfg.GroupSize = nil, 1, 1
	for i := range 10 {
		cfg.Tasks = append(cfg.Tasks, servicetest.Config(fmt.Sprintf("task-%02d", i)).Tasks...)
	}
	servicetest.OpenRun(r, r.log, name, cfg)
	for i := range 10 {
		rollout, task, reward := events.RolloutID(events.GroupID(int64(i+1)), 0), fmt.Sprintf("task-%02d", i), 0.0
		if i < pass {
			reward = 1
		}
		put := func(typ events.Type, data any) {
			servicetest.Append(r, r.log, servicetest.Event(r, name, typ, rollout, "0", data))
		}
		put(events.RolloutStartedType, events.RolloutStarted{Group: events.GroupOf(rollout), Task: task,
			Deadline: time.Now().Add(time.Hour)})
		put(events.RolloutFinishedType, events.RolloutFinished{Task: task, StopReason: events.StopFinished,
			Turns: 3 + i%4, Tokens: 2000 + 90*i})
		put(events.RolloutScoredType, events.RolloutScored{Reward: reward})
	}
}

// TestOtherPages drives what leads away from a run: what a turn changed, the fleet, the plane with
// its past, dead letters that are submitted again, and evaluations beside each other. All of them
// in the dark, and on a phone.
func TestOtherPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.edited()
	s.spoken()
	s.evaluated("version-12", 9)
	s.evaluated("version-6", 2)
	s.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(s.base+"/runs/edits"))
	s.click(`a[href="/runs/edits/rollouts/g000001-0"]`)
	s.click(`a[href$="/turns/0/changes"]`)
	s.is(`document.querySelectorAll("pre.diff .gone").length === 1 && document.querySelector("pre.diff .came").textContent.includes("-gt")`)
	s.is(`document.title !== "taken over" && document.querySelectorAll("main script, main img").length === 0 && document.querySelector("main").textContent.includes("<script>")`)
	s.axe("changes")
	s.picture("dashboard-changes.png")

	s.click(`nav a[href="/fleet"]`)
	s.is(`document.querySelectorAll(".boxes li").length === 24 && document.querySelectorAll(".servers .lost").length === 1 && document.querySelector("main").textContent.includes("20 of 32 requests")`)
	s.axe("the fleet")
	s.picture("dashboard-fleet.png")

	if _, err := s.log.Submitter.Submit(t.Context(), eventlog.Submission{Run: "late", Type: events.RunPausedType,
		Entity: "late", Data: events.RunPaused{Reason: says}, ID: "x", Source: "test"}); err == nil {
		t.Fatal("a run that is not there was paused")
	}
	servicetest.OpenRun(t, s.log, "late", servicetest.Config("mend-clamp"))
	s.do(chromedp.Navigate(s.base + "/plane"))
	s.is(`document.querySelector("main").textContent.includes("1.3 GiB") && !!document.querySelector("button[name=letter]")`)
	s.axe("the plane")
	s.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector("#token").value = %q`, token)))
	s.click(`button[name=letter]`)
	s.is(`location.pathname === "/plane" && document.querySelector("#live").textContent.includes("was submitted again")`)
	s.do(chromedp.Navigate(s.base + "/runs/late"))
	s.is(`document.querySelector("#stands").textContent.includes("paused") && document.querySelectorAll("main script, main img").length === 0 && document.title !== "taken over"`)
	s.do(chromedp.Navigate(s.base + "/plane"))
	s.is(`!!document.getElementById("at")`)
	s.do(chromedp.Evaluate[chromedp.Void](`(() => { const at = document.getElementById("at"); at.value = 5; at.dispatchEvent(new Event("change")); })()`))
	s.is(`location.search === "?at=5" && document.querySelector("#live").textContent.includes("as it was at event 5") && !document.querySelector("button[name=letter]")`)

	s.do(chromedp.Navigate(s.base + "/runs/version-12"))
	s.click(`a[href="/runs/version-12/evaluation"]`)
	s.is(`!!document.getElementById("against")`)
	s.do(chromedp.Evaluate[chromedp.Void](`(() => { const of = document.getElementById("against"); of.value = "version-6"; of.form.requestSubmit(); })()`))
	s.is(`location.search.includes("against=version-6") && document.querySelector("main").textContent.includes("better")`)
	s.axe("an evaluation")
	s.picture("dashboard-evaluation.png")
	s.is(`!document.getElementById("theme").hidden`) // the page's program has begun
	s.click(`#theme`)
	s.is(`getComputedStyle(document.body).backgroundColor === "rgb(15, 21, 27)"`)
	others := []string{"/fleet", "/plane", "/runs/version-12/evaluation?against=version-6",
		"/runs/edits/rollouts/g000001-0/turns/0/changes"}
	for _, path := range others {
		s.do(chromedp.Navigate(s.base + path))
		s.is(`!!document.querySelector("h1") && getComputedStyle(document.body).backgroundColor === "rgb(15, 21, 27)"`)
		s.axe(path + " in the dark")
	}
	s.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	for _, path := range others {
		s.do(chromedp.Navigate(s.base + path))
		s.is(`!!document.querySelector("h1") && document.documentElement.scrollWidth <= 360`)
	}
}

// TestComparisonAndFilters drives runs beside each other, which are two clicks from their list, and
// the filter of a run's rollouts.
func TestComparisonAndFilters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.step(1)
	s.step(2)
	s.evaluated("version-6", 2)
	s.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(s.base))
	s.click(`a[href="/compare"]`)
	s.is(`location.search === "?run=version-6&run=live"`)
	s.is(points + ` === 2 && document.querySelectorAll("[data-chart=tokens] canvas").length === 1`)
	s.is(`document.querySelector("#settings").textContent.includes("feeds")`)
	s.axe("a comparison")
	s.click(`input[value="live"]`)
	s.click(`fieldset.runs button`)
	s.is(`location.search === "?run=version-6&run=" && document.querySelector("[data-chart=reward]").textContent.includes("An evaluation makes none")`)

	s.do(chromedp.Navigate(s.base + "/runs/live"))
	s.is(points + ` === 2 && document.querySelector("#rollouts").textContent.includes("8 rollouts")`)
	s.do(chromedp.Evaluate[chromedp.Void](`(() => { const least = document.querySelector("input[name=least]"); least.value = 0.5; least.form.requestSubmit(); })()`))
	s.is(`location.search.includes("least=0.5") && document.querySelector("#rollouts").textContent.includes("3 rollouts")`)
	s.is(`new URL(document.querySelector("a[download]").href).search.includes("least=0.5")`)
	s.do(chromedp.Evaluate[chromedp.Void](`(() => { const words = document.querySelector("input[name=words]"); words.value = "the WRONG way"; words.form.requestSubmit(); })()`))
	// On a busy machine a search may end before it has all.
	const found = `!!document.querySelector("#finds") && (document.querySelector("p[role=status]").textContent.includes("not looked at") ? (location.reload(), false) :
		document.querySelectorAll("#finds tbody tr").length === 3 && document.querySelector("#finds mark").textContent === "the wrong way")`
	s.is(`location.pathname === "/runs/live/search" && location.search.includes("least=0.5") && location.search.includes("words=the+WRONG+way")`)
	s.is(found)
	search := `/runs/live/search?least=0.5&words=the+WRONG+way`
	s.axe("a search")
	s.click(`#finds a`)
	s.is(`location.pathname.startsWith("/runs/live/rollouts/") && location.hash === "#m1" && !!document.querySelector("#m1")`)
	s.do(chromedp.Navigate(s.base + "/runs/live?least=0.5"))
	s.click(`a[href*="outcome=failed"]`)
	s.is(`location.search.includes("least=0.5") && document.querySelector("#rollouts").textContent.includes("There are none")`)

	both := []string{"/compare?run=live&run=version-6", "/runs/live?task=clamp&least=0.5"}
	s.is(`!document.getElementById("theme").hidden`) // the page's program has begun
	s.click(`#theme`)
	s.is(`getComputedStyle(document.body).backgroundColor === "rgb(15, 21, 27)"`)
	for _, path := range both {
		s.do(chromedp.Navigate(s.base + path))
		s.is(points + ` === 2 && getComputedStyle(document.body).backgroundColor === "rgb(15, 21, 27)"`)
		s.axe(path + " in the dark")
	}
	s.do(chromedp.Navigate(s.base + search))
	s.is(found + ` && getComputedStyle(document.body).backgroundColor === "rgb(15, 21, 27)"`)
	s.axe("a search in the dark")
	s.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile), chromedp.Navigate(s.base+search))
	s.is(found + ` && document.documentElement.scrollWidth <= 360`)
	for _, path := range both {
		s.do(chromedp.Navigate(s.base + path))
		s.is(points + ` === 2 && document.documentElement.scrollWidth <= 360`)
	}
}
