package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestPagesReachNoServer: a page in a browser on this machine reads no metrics and asks no policy,
// also under a name that leads here.
func TestPagesReachNoServer(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	e, err := plane.ReadEndpoint(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	ports := natstest.FreePorts(t, 2)
	policy, metrics := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	servicetest.Start(t, func(ctx context.Context) error {
		root := New()
		root.SetArgs([]string{"service", "policy", "--nats", e.NATS, "--store", e.Store, "--dir", t.TempDir(),
			"--policy-listen", policy,
			"--metrics-listen", strings.Replace(metrics, "127.0.0.1", "0.0.0.0", 1),
			"--allow-host", "node1.corp.example"})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		return root.ExecuteContext(ctx)
	})
	for _, address := range []string{policy + "/v1/models", metrics + "/metrics"} {
		if status := get(t, address, "", ""); status != http.StatusOK {
			t.Errorf("%s: a client is answered %d", address, status)
		}
		for _, c := range [][2]string{{"evil.example", ""}, {"", "https://evil.example"}, {"", "null"}} {
			if status := get(t, address, c[0], c[1]); status != http.StatusForbidden {
				t.Errorf("%s: host %q and origin %q are answered %d", address, c[0], c[1], status)
			}
		}
	}
	for host, want := range map[string]int{"toolrunner": http.StatusOK, "10.0.0.7:9100": http.StatusOK,
		"node1.corp.example:9100": http.StatusOK, "node2.corp.example:9100": http.StatusForbidden} {
		if status := get(t, metrics+"/metrics", host, ""); status != want {
			t.Errorf("over the network, host %q is answered %d, want %d", host, status, want)
		}
	}
}

// get asks as soon as somebody listens.
func get(t *testing.T, address, host, origin string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	for deadline := time.After(time.Minute); ; {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			resp.Body.Close()
			return resp.StatusCode
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
