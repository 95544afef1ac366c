package fleet

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// TestAdaptersAsked: a turn asks for the version that its server has said it serves, by its
// name, and is of that version whatever the server's own label is. A server that has unloaded
// it meanwhile costs no try: the turn waits for what the log says next. A run that pins a
// version asks for its own.
func TestAdaptersAsked(t *testing.T) {
	for server, c := range map[string]struct {
		base   string // in front of an adapter's name
		status int
		says   string
	}{"vLLM": {"", http.StatusNotFound, "The model %s does not exist."},
		"SGLang": {"org/base:", http.StatusBadRequest, "The following requested LoRA adapters are not loaded: %s"}} {
		t.Run(server, func(t *testing.T) { adaptersAsked(t, c.base, c.status, c.says) })
	}
}

func adaptersAsked(t *testing.T, base string, status int, says string) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		has := []string{base + "p@1", "p@7"}
		var asked []string
		f, farm := newFarm(t, map[string]func(int, time.Duration) reply{"a": func(int, time.Duration) reply {
			mu.Lock()
			defer mu.Unlock()
			if model := asked[len(asked)-1]; !slices.Contains(has, model) {
				return reply{status: status, body: `{"error":{"message":"` +
					fmt.Sprintf(says, strings.TrimPrefix(model, base)) + `"}}`}
			}
			return reply{body: spanned("7", "7")} // the label of its base
		}}, nil)
		ask := func(pinned *int64) (*Answer, error) {
			c := call("x", 8, "a")
			c.Patient, c.Config.PolicyVersion, c.Until = true, pinned, time.Now().Add(time.Hour)
			c.Request = func(model string, _ int) any {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, model)
				return map[string]string{"model": model}
			}
			return f.Complete(t.Context(), c)
		}
		isPublished(t, f, 1)
		adapter := func(version int64, name string, lost bool) {
			said(t, f, events.WeightsActivatedType, events.WeightsActivated{Version: version, Replica: "http://a/v1",
				Model: base + name, Lost: lost})
		}
		adapter(1, "p@1", false)
		if answer, err := ask(nil); err != nil || answer.Turn.PolicyVersion != 1 || answer.Turn.VersionSpans != nil {
			t.Errorf("%+v, %v", answer, err)
		}
		mu.Lock()
		has = nil
		mu.Unlock()
		done := make(chan error)
		go func() {
			answer, err := ask(nil)
			if err == nil && answer.Turn.PolicyVersion != 2 {
				t.Errorf("%+v", answer.Turn)
			}
			done <- err
		}()
		time.Sleep(10 * time.Second)
		mu.Lock()
		has = []string{base + "p@2", "p@7"}
		mu.Unlock()
		adapter(2, "p@2", false)
		if err := <-done; err != nil {
			t.Errorf("a server that has unloaded the adapter: %v", err)
		}
		if n := len(farm.times("a")); n < 5 || n > 20 {
			t.Errorf("it was asked %d times in ten seconds", n)
		}
		if _, err := ask(new(int64(7))); err != nil {
			t.Error(err)
		}
		if asked[0] != base+"p@1" || asked[len(asked)-1] != "p@7" || !slices.Contains(asked, base+"p@2") {
			t.Errorf("asked for %q", asked)
		}
		adapter(2, "p@2", true)
		c := call("x", 8, "a")
		if _, err := f.Complete(t.Context(), c); err == nil {
			t.Error("a server that has lost its adapter gets a turn")
		}
	})
}

// TestNoSuchModel: a server that does not know the policy's one name is told of at once, as ever.
func TestNoSuchModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, farm := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(reply{status: http.StatusNotFound,
			body: `{"error":{"message":"The model p does not exist."}}`})}, nil)
		c := call("x", 8, "a")
		c.Patient = true
		if _, err := f.Complete(t.Context(), c); err == nil || len(farm.times("a")) != 1 {
			t.Errorf("%v, asked %d times", err, len(farm.times("a")))
		}
	})
}
