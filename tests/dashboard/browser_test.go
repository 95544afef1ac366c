// Package dashboard drives the dashboard in a browser, over a run that goes on meanwhile.
package dashboard

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/services/dashboard"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tests/program"
)

var screenshots = flag.Bool("screenshots", false, "write the pictures of docs/guide/dashboard.md")

const token = "the-token-of-this-test-0123456789"

// pictures is where the guide has its pictures.
const pictures = "../../docs/guide/pictures"

// browser starts Chromium with a profile of its own.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		program.Missing(t, "there is no Chromium: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-background-networking", true),
		chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, closePage := chromedp.NewContext(ctx)
	t.Cleanup(closePage)
	return ctx
}

// run is a small run that goes on while it is looked at.
type run struct {
	*testing.T
	log *eventlog.Log
}

func (r *run) state(typ events.Type, entity, ordinal string, data any) {
	r.Helper()
	servicetest.Append(r, r.log, servicetest.Event(r, "live", typ, entity, ordinal, data))
}

// says is what the model of the run writes.
const says = `<script>document.title = "taken over"</script><img src=x onerror="document.title = 'taken over'">`

// step lets a group of four run to its end, and makes a batch of it.
func (r *run) step(n int64) {
	r.Helper()
	id := events.GroupID(n)
	r.state(events.GroupOpenedType, id, "0", events.GroupOpened{Task: "mend-clamp", Size: 4, PolicyVersion: n - 1})
	done := events.GroupCompleted{Task: "mend-clamp", Estimator: "grpo"}
	batch := events.BatchReady{Step: n, Groups: []string{id}, Staleness: n % 2}
	for i := range 4 {
		rollout := events.RolloutID(id, i)
		reward := float64(0)
		if int64(i) < n {
			reward = 1
		}
		r.rollout(rollout, n-1, reward)
		done.Members = append(done.Members, events.Member{Rollout: rollout, Reward: reward, Shaped: reward,
			Advantage: reward - float64(min(n, 4))/4})
		batch.Rollouts = append(batch.Rollouts, rollout)
		batch.RewardMean += reward / 4
	}
	done.Mean = batch.RewardMean
	r.state(events.GroupCompletedType, id, "0", done)
	r.state(events.BatchReadyType, "trainer", events.Ordinal(n), batch)
	r.state(events.BatchConsumedType, "trainer", "c"+events.Ordinal(n), events.BatchConsumed{Step: n})
}

// rollout lets one rollout make two calls beside each other and end.
func (r *run) rollout(id string, version int64, reward float64) {
	r.Helper()
	began := time.Now().UTC().Add(-1700 * time.Millisecond) // what took this long is over
	r.state(events.RolloutStartedType, id, "0", events.RolloutStarted{Group: events.GroupOf(id), Task: "mend-clamp",
		PolicyVersion: version, Deadline: began.Add(time.Hour)})
	calls := []events.ToolCall{{ID: "a", Name: "search_replace",
		Arguments: `{"file_path":"clamp.sh","old_string":"if [ $1 -lt $2 ]","new_string":"if [ \"$1\" -gt \"$2\" ]"}`},
		{ID: "b", Name: "run_terminal_cmd", Arguments: `{"command":"sh test.sh"}`}}
	code := int(1 - reward)
	results := []events.ToolResult{{CallID: "a", Name: "search_replace", Content: "ok",
		StartedAt: began.Add(900 * time.Millisecond), DurationMS: 120},
		{CallID: "b", Name: "run_terminal_cmd", Content: "ok 1\nok 2\n", ExitCode: &code,
			StartedAt: began.Add(950 * time.Millisecond), DurationMS: 640}}
	way := "I look at the comparison first. "
	if reward == 0 {
		way = "I guess. "
	}
	r.state(events.TurnSampledType, id, "0", events.TurnSampled{Content: way, ToolCalls: calls,
		TokenIDs: []int32{3, 4, 5}, Logprobs: []float32{-.1, -2, -.01},
		NewSegment: true, PolicyVersion: version, StartedAt: began, LatencyMS: 850})
	r.state(events.ToolsCompletedType, id, "0", events.ToolsCompleted{Results: results, Isolation: "namespaces",
		Filesystem: "overlay", Runner: "r"})
	tr := servicetest.Trajectory("live", id, "mend-clamp")
	tr.DispatchVersion = version
	tr.Messages[1].Content, tr.Messages[1].StartedAt, tr.Messages[1].Duration, tr.Messages[1].PolicyVersion = way+says,
		began, 850*time.Millisecond, version
	tr.Messages[1].Reasoning = "The upper bound is compared the wrong way round."
	tr.Messages[1].ToolCalls = fmt.Sprintf(`[{"id":"a","name":"search_replace","arguments":%q},{"id":"b","name":"run_terminal_cmd","arguments":%q}]`,
		calls[0].Arguments, calls[1].Arguments)
	finished := servicetest.Finished(r, r.log.Store(), "live", id, tr)
	r.state(events.RolloutFinishedType, id, "0", finished)
	scored := events.RolloutScored{Reward: reward, Components: map[string]float64{"tests": reward},
		Trajectory: finished.Trajectory, TaskDigest: "sha256:x", DurationMS: 60,
		Tests: &grade.Tests{Graded: 2, Held: 2}}
	if reward == 0 {
		log := servicetest.Blob(r, r.log.Store(), []byte("not ok 2 upper bound\n# got 12, want 10\n"))
		scored.Log, scored.ExitCode = &log, 1
		scored.Tests = &grade.Tests{Graded: 2, Held: 1,
			Unmet: []grade.UnmetTest{{Name: "upper bound", State: "failed", Message: "got 12, want 10"}}}
	}
	r.state(events.RolloutScoredType, id, "0", scored)
}

// site is a dashboard over a live run, and a browser.
type site struct {
	*run
	ctx  context.Context
	base string
}

func newSite(t *testing.T) *site {
	t.Helper()
	ctx := browser(t)
	r := &run{t, natstest.Log(t)}
	cfg := servicetest.Config("mend-clamp")
	servicetest.OpenRun(t, r.log, "live", cfg)
	env := servicetest.Env(t, r.log)
	servicetest.Start(t, func(ctx context.Context) error { return intake.Run(ctx, env) })
	d, err := dashboard.New(t.Context(), env, dashboard.Access{Token: token}, policy.TokenText)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	s := &site{r, ctx, server.URL}
	s.do(chromedp.Navigate(s.base + "/runs/live"))
	s.is(`document.querySelector("h1").textContent === "Unauthorized" && document.querySelector("main").textContent.includes("rondo dashboard --dir DIR")`)
	s.do(chromedp.Navigate(s.base + dashboard.LinkPath(token)))
	s.is(`location.pathname === "/" && location.search === "" && !!document.querySelector("#runs") && document.referrer === "" && document.cookie === ""`)
	return s
}

// do runs steps in the browser.
func (s *site) do(steps ...chromedp.Action[chromedp.Void]) {
	s.Helper()
	if err := chromedp.Do(s.ctx, steps...); err != nil {
		s.Fatal(err)
	}
}

// click presses what a selector finds.
func (s *site) click(selector string) {
	s.Helper()
	s.is(fmt.Sprintf("!!document.querySelector(%q)", selector))
	s.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", selector)))
}

// is waits until an expression of the page is true. While a page goes over
// into another one it is not.
func (s *site) is(expression string) {
	s.Helper()
	natstest.Eventually(s, expression, func() bool {
		yes, err := chromedp.Run(s.ctx, chromedp.Evaluate[bool](expression))
		return err == nil && yes
	})
}

// picture writes a screenshot, when it is told to.
func (s *site) picture(name string) {
	s.Helper()
	if !*screenshots {
		return
	}
	png, err := chromedp.Run(s.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		s.Fatal(err)
	}
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pictures, name), png, 0o644); err != nil {
		s.Fatal(err)
	}
}

// points is how many points a chart has.
const points = `Number(document.querySelector('[data-chart=reward]').dataset.points || 0)`

// TestDashboard drives all of it: the curves move while the run goes on, a rollout opens, what
// a model wrote stays text, the slider goes back, light becomes dark, a phone shows it, and
// axe finds nothing serious.
func TestDashboard(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.step(1)
	s.step(2)
	s.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(s.base))
	s.click(`a[href="/runs/live"]`)
	s.is(points + ` === 2`)
	s.step(3)
	s.is(points + ` === 3 && document.querySelector('.tiles').textContent.includes('12')`)
	s.step(4)
	s.is(points + ` === 4`)
	s.axe("a run")
	s.picture("dashboard-run.png")

	s.click(`a[href="/runs/live/rollouts/g000004-0"]`)
	s.is(`!!document.querySelector("svg.timeline")`)
	s.is(`document.title !== "taken over" && document.querySelectorAll("main script, main img").length === 0 && document.querySelector("main").textContent.includes("<script>")`)
	s.is(`document.querySelectorAll("svg.timeline rect").length === 4 && new Set([...document.querySelectorAll("svg.timeline rect")].map((r) => r.getAttribute("y"))).size === 4`)
	s.axe("a rollout")
	s.picture("dashboard-rollout.png")
	s.click(`a[href$="/messages/1/tokens"]`)
	s.is(`document.querySelectorAll(".tokens li").length === 3`)
	s.axe("tokens")

	s.do(chromedp.Navigate(s.base + "/runs/live"))
	s.do(chromedp.Evaluate[chromedp.Void](`(() => { const at = document.getElementById("at"); at.value = 12; at.dispatchEvent(new Event("change")); })()`))
	s.is(`location.search === "?at=12" && document.querySelector("#live").textContent.includes("as it was at event 12")`)

	s.do(chromedp.Navigate(s.base + "/runs/live"))
	s.is(`getComputedStyle(document.body).backgroundColor === "rgb(255, 255, 255)"`)
	s.click(`#theme`)
	s.is(`getComputedStyle(document.body).backgroundColor === "rgb(15, 21, 27)"`)
	s.axe("a run in the dark")
	s.do(chromedp.Reload())
	s.is(points + ` === 4 && getComputedStyle(document.body).backgroundColor === "rgb(15, 21, 27)"`)
	s.picture("dashboard-dark.png")

	s.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	for _, path := range []string{"/", "/runs/live", "/runs/live/groups/g000004", "/runs/live/rollouts/g000004-0",
		"/runs/live/rollouts/g000004-0/messages/1/tokens", "/plane", "/none"} {
		s.do(chromedp.Navigate(s.base + path))
		s.is(`!!document.querySelector("h1") && document.documentElement.scrollWidth <= 360`)
	}
}

// TestPauseWithTheToken: a run is paused by the form with the token, and by nothing else.
func TestPauseWithTheToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	press := func(with string) {
		s.do(chromedp.Navigate(s.base + "/runs/live"))
		s.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector("#token").value = %q`, with)))
		s.click("button[value=pause]")
	}
	press("another-token")
	s.is(`document.querySelector("h1").textContent === "Forbidden"`)
	if state, _, err := s.log.RunState(t.Context(), "live"); err != nil || state != "open" {
		t.Fatalf("the run is %s, %v", state, err)
	}
	press(token)
	s.is(`location.pathname === "/runs/live" && document.querySelector("#stands").textContent.includes("paused on the dashboard")`)
	if state, _, err := s.log.RunState(t.Context(), "live"); err != nil || state != "paused" {
		t.Errorf("the run is %s, %v", state, err)
	}
}

// axe has the page examined for what keeps people from using it.
func (s *site) axe(page string) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("NODE_PATH"), "axe-core", "axe.min.js"))
	if err != nil && os.Getenv("RONDO_REQUIRE_ALL") != "1" {
		s.Logf("%s is not examined: %v", page, err)
		return
	}
	if err != nil {
		s.Fatal(err)
	}
	s.do(chromedp.Evaluate[chromedp.Void](string(text) + ";undefined"))
	faults, err := chromedp.Run(s.ctx, chromedp.Evaluate[[]string](`axe.run().then((r) => r.violations.filter((v) => v.impact === "serious" || v.impact === "critical")
		.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 200)).join(" | ")))`, chromedp.EvalAwaitPromise))
	if err != nil {
		s.Fatal(err)
	}
	for _, fault := range faults {
		s.Errorf("%s: %s", page, fault)
	}
}
