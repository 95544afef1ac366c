package fleet

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// spanned is an answer of two tokens with the version of each.
func spanned(first, second string) string {
	return `{"prompt_token_ids":[1],"choices":[{"finish_reason":"stop","message":{"content":"a"},"token_ids":[2,3],"logprobs":{"content":[{"logprob":-1},{"logprob":-1}]},` +
		`"weight_versions":[{"version":"` + first + `","start":0,"end":1},{"version":"` + second +
		`","start":1,"end":2}]}]}`
}

// TestPinnedSpans: a run that pins a version takes no turn of which a part is of another
// one, whichever part that is.
func TestPinnedSpans(t *testing.T) {
	for name, c := range map[string]struct{ body, says string }{
		"the pinned one":    {spanned("7", "7"), ""},
		"a new one at last": {spanned("7", "8"), "serves version 7 and then version 8 of p; the run pins version 7"},
		"an old one first":  {spanned("6", "7"), "serves version 6 and then version 7 of p"},
		"no known one":      {spanned("default", "default"), ""},
		"a gap": {strings.Replace(spanned("7", "7"), `"start":1`, `"start":2`, 1),
			"serves version -1 of p"},
	} {
		synctest.Test(t, func(t *testing.T) {
			servers, _ := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(reply{body: c.body})}, nil)
			pinned := call("x", 8, "a")
			pinned.Config.PolicyVersion, pinned.Version = new(int64(7)), 7
			answer, err := servers.Complete(t.Context(), pinned)
			if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: %v", name, err)
			}
			if c.says == "" && (err != nil || answer.Turn.PolicyVersion != 7) {
				t.Errorf("%s: %+v, %v", name, answer, err)
			}
		})
	}
}

// TestAborted: a turn that the server aborted is none, and no failed try: it is asked for again.
// The server is as well as before, and asked for as much.
func TestAborted(t *testing.T) {
	const abort = `{"choices":[{"finish_reason":"abort","message":{"content":"ha"}}]}`
	synctest.Test(t, func(t *testing.T) {
		servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": func(n int, _ time.Duration) reply {
			if n >= 3 && n < 3+2*tripAfter {
				return reply{body: abort}
			}
			return reply{}
		}}, nil)
		patient := call("x", 8, "a")
		patient.Patient = true
		for range 3 {
			if _, err := servers.Complete(t.Context(), patient); err != nil {
				t.Fatal(err)
			}
		}
		allowed, began := servers.replicas["http://a/v1"].allowed, time.Now()
		answer, err := servers.Complete(t.Context(), patient)
		if err != nil || answer.Turn.FinishReason != "stop" {
			t.Fatalf("%+v, %v", answer, err)
		}
		if n, took := len(f.times("a")), time.Since(began); n != 4+2*tripAfter || took < 2*tripAfter*abortRest {
			t.Errorf("asked %d times, the last of them within %s", n, took)
		}
		if r := servers.replicas["http://a/v1"]; r.open || r.opened > 0 || r.setbacks > 0 || r.allowed < allowed {
			t.Errorf("the server is %+v", r)
		}
	})
	synctest.Test(t, func(t *testing.T) { // one that aborts for ever is left at last, without a failed try
		servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(reply{body: abort})}, nil)
		patient := call("x", 8, "a")
		patient.Patient, patient.Until = true, time.Now().Add(10*time.Second)
		_, err := servers.Complete(t.Context(), patient)
		var failure *inference.Failure
		if !errors.As(err, &failure) || !failure.Throttled || failure.Permanent || failure.Away {
			t.Errorf("failed with %+v (%v)", failure, err)
		}
		if n := len(f.times("a")); n < 10 || n > 45 {
			t.Errorf("asked %d times in 10 s", n)
		}
	})
}
