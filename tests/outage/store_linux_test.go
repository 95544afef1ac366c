package outage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage/storagetest"
	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/program"
)

// slowDown is what S3 answers who asks too much, or while it is not well.
const slowDown = `<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`

// front is a bucket behind a proxy that answers 503 while it is down.
type front struct {
	store   string // its location
	down    atomic.Bool
	refused atomic.Int64
}

func newFront(t *testing.T) *front {
	t.Helper()
	behind, err := url.Parse(storagetest.S3Dev(t))
	if err != nil {
		t.Fatal(err)
	}
	f := &front{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(behind)
		r.Out.Host = r.In.Host // which is signed
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.down.Load() {
			f.refused.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(slowDown))
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.store = "s3://rondo-outage/plane?create=true&endpoint=" + url.QueryEscape(server.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", storagetest.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", storagetest.SecretKey)
	return f
}

// open opens a run whose rollouts may take so long. It has few of them in flight: on a busy
// machine, none waits for its limit.
func open(t *testing.T, dir, run string, timeout time.Duration) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(file, []byte("endpoint: builtin\npolicy: "+run+
		"\nstaleness: {max: 1}\nin_flight: 16\nlimits: {timeout: "+timeout.String()+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := command(t, "run", "open", run, "--dir", dir, "--file", file); code != 0 {
		t.Fatal(out)
	}
}

// grows waits until a run has some more events.
func grows(t *testing.T, dir, run string, than int64) {
	t.Helper()
	program.Eventually(t, func() error {
		n, err := eventsOf(t, dir, run)
		if err == nil && n < than+20 {
			err = fmt.Errorf("%d events after %d", n, than)
		}
		return err
	})
}

// event is what of an event these tests look at.
type event struct {
	Type string
	Data json.RawMessage
}

// typed are the events of a run.
func typed(t *testing.T, dir, run string) (all []event) {
	t.Helper()
	out, code := command(t, "events", "tail", run, "--dir", dir, "--json")
	if code != 0 {
		t.Fatalf("events tail: %d\n%s", code, out)
	}
	for line := range strings.Lines(out) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// TestStoreAnswers503: a store that answers 503 for longer than all tries of its client and of a
// rollout together, and for twice as long as a rollout may take, fails no rollout and pauses no
// run. The plane says so, and goes on by itself.
func TestStoreAnswers503(t *testing.T) {
	nightly.Only(t)
	program.NeedSandbox(t)
	const timeout, lasts = 30 * time.Second, time.Minute
	dir, status, front := t.TempDir(), address(t), newFront(t)
	up := program.Start(t, exec.Command(rondo, "up", "--dir", dir, "--store", front.store, "--listen", status))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the plane:\n%s", up)
		}
	})
	wants(t, status, "/readyz", true)
	open(t, dir, "r", timeout)
	more := func(than int64) { t.Helper(); grows(t, dir, "r", than) }
	more(0)
	front.down.Store(true)
	began := time.Now()
	wants(t, status, "/readyz", false, "store_unreachable", "inputs_parked")
	program.Eventually(t, func() error {
		if took := time.Since(began); took < lasts || front.refused.Load() < 100 {
			return fmt.Errorf("the outage lasts for %s, with %d requests", took, front.refused.Load())
		}
		return nil
	})
	front.down.Store(false)
	wants(t, status, "/readyz", true)
	before, err := eventsOf(t, dir, "r")
	if err != nil {
		t.Fatal(err)
	}
	more(before)
	wants(t, status, "/readyz", true)
	waits := 0
	for _, e := range typed(t, dir, "r") {
		if strings.HasSuffix(e.Type, "stage.waited") {
			waits++
		}
		if strings.HasSuffix(e.Type, "rollout.failed") || strings.HasSuffix(e.Type, "rollout.retried") ||
			strings.HasSuffix(e.Type, "run.paused") {
			t.Errorf("the outage has cost %s: %s", e.Type, e.Data)
		}
	}
	if waits == 0 {
		t.Error("the log does not say that its stages wait")
	}
	for _, args := range [][]string{{"audit", "r"}, {"replay", "r", "--verify"}} {
		if out, code := command(t, append(args, "--dir", dir)...); code != 0 {
			t.Errorf("%s: %d\n%s", args[0], code, out)
		}
	}
	up.Stop(t)
}
