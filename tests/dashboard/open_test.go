package dashboard

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"github.com/rondo-rl/rondo/tests/nightly"
)

// hour is how often a page that is open for an hour asks for what it shows, where its run
// changes every five seconds.
const hour = 720

// held is what a page and the dashboard hold.
type held struct {
	nodes, listeners, heap float64
	goroutines             int
}

// held collects garbage and counts what is left.
func (s *site) held() (h held) {
	s.Helper()
	metrics, err := chromedp.Run(s.ctx, func(ctx context.Context, t *chromedp.Target) ([]*performance.Metric, error) {
		if _, err := cdp.Call(ctx, t, performance.Enable, performance.EnableParams{}); err != nil {
			return nil, err
		}
		if _, err := cdp.Call(ctx, t, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			return nil, err
		}
		got, err := cdp.Call(ctx, t, performance.GetMetrics, cdp.Empty{})
		return got.Metrics, err
	})
	if err != nil {
		s.Fatal(err)
	}
	for _, m := range metrics {
		switch m.Name {
		case "Nodes":
			h.nodes = m.Value
		case "JSEventListeners":
			h.listeners = m.Value
		case "JSHeapUsedSize":
			h.heap = m.Value
		}
	}
	h.goroutines = runtime.NumGoroutine()
	return h
}

// renew has the page take itself up so often. Each copy differs from the page, so that all of it is
// put in the place of what was there.
const renew = `(async (times) => {
	const ask = window.fetch;
	let asked = 0;
	window.fetch = (...all) => { asked++; return ask(...all); };
	for (const most = Date.now() + 600e3; asked < 2 * times && Date.now() < most; ) {
		document.getElementById("live").append("changed");
		document.dispatchEvent(new Event("visibilitychange"));
		await new Promise((done) => setTimeout(done, 2));
	}
	window.fetch = ask;
	return asked;
})`

// TestPageLeftOpen: a page that renews itself for an hour holds no more at its end than at its
// beginning, nor does the dashboard.
func TestPageLeftOpen(t *testing.T) {
	s := newSite(t)
	for n := range int64(4) {
		s.step(n + 1)
	}
	s.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(s.base+"/runs/live"))
	s.is(points + ` === 4`)
	times := func(n int) held {
		asked, err := chromedp.Run(s.ctx, chromedp.Evaluate[int](fmt.Sprintf("%s(%d)", renew, n),
			chromedp.EvalAwaitPromise))
		if err != nil || asked < 2*n {
			t.Fatalf("the page asked %d times, %v", asked, err)
		}
		return s.held()
	}
	before := times(nightly.Count(40, 100))
	after := times(nightly.Count(80, hour)) // one listener of each copy that stays is seen after 50
	t.Logf("%+v, then %+v", before, after)
	// A copy of the page, of some 1000 nodes, may be under way when they are counted.
	if after.nodes > before.nodes+1500 || after.listeners > before.listeners+50 || after.heap > before.heap+2<<20 ||
		after.goroutines > before.goroutines+10 {
		t.Errorf("an hour later the page holds %+v, at first %+v", after, before)
	}
}
