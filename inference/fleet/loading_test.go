package fleet

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// TestLoadingServer: a server that loads its model is away and will come, whether it answers 503 or
// does not listen yet. One that refuses connections for longer is an address where nobody is.
func TestLoadingServer(t *testing.T) {
	refused := reply{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	for name, c := range map[string]struct {
		says    reply
		waits   time.Duration // from the first failure on
		away    bool
		loading time.Duration
	}{
		"503":                      {reply{status: http.StatusServiceUnavailable}, time.Hour, true, 5 * time.Minute},
		"refuses":                  {refused, 4 * time.Minute, true, 5 * time.Minute},
		"refuses for long":         {refused, 6 * time.Minute, false, 5 * time.Minute},
		"refuses, without a grace": {refused, 0, false, 0},
		"another failure": {reply{err: &net.OpError{Op: "dial", Err: errors.New("no such host")}}, 0,
			false, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _ := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(c.says)},
					func(o *Options) { o.Loading = c.loading })
				ask := func() *inference.Failure {
					_, err := f.Complete(t.Context(), call("r", 4, "a"))
					var failure *inference.Failure
					if !errors.As(err, &failure) {
						t.Fatalf("failed with %v", err)
					}
					return failure
				}
				ask()
				time.Sleep(c.waits)
				var last *inference.Failure
				for i := range 2 * tripAfter { // the circuit opens meanwhile
					if last = ask(); last.Away != c.away {
						t.Errorf("request %d: away %v: %v", i, last.Away, last)
					}
				}
				// What was not asked says whose failure it tells.
				if name == "another failure" &&
					!strings.Contains(last.Error(),
						"http://a/v1 is left alone after 5 failures in a row, of which the last was:") {
					t.Errorf("an open circuit tells %v", last)
				}
			})
		})
	}
}
