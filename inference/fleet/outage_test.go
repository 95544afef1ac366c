package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// TestOutageIsOneLine: all that was under way fails together, and is told once.
func TestOutageIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serve := func(_ int, at time.Duration) reply {
			if at >= 30*time.Second {
				return reply{err: errors.New("connection reset"), takes: time.Second}
			}
			return reply{takes: time.Second}
		}
		var log bytes.Buffer
		servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": serve},
			func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				for time.Since(f.began) < 31*time.Second {
					servers.Complete(t.Context(), call(fmt.Sprint(i), 32, "a"))
				}
			})
		}
		wg.Wait()
		if got := servers.replicas["http://a/v1"]; !got.open || got.opened != 1 || got.allowed != 1 {
			t.Errorf("the server is %+v", got)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("the log has %d warnings:\n%s", n, &log)
		}
	})
}

// TestWrongAddress: an endpoint that never answered is told at once, one that did is waited for.
func TestWrongAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, f := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(reply{status: 502,
			body: "nobody"})}, nil)
		patient := func(answered bool) (*inference.Failure, time.Duration) {
			began := time.Now()
			c := call("x", 8, "a")
			c.Patient, c.Answered = true, func(context.Context) bool { return answered }
			_, err := servers.Complete(t.Context(), c)
			var failure *inference.Failure
			if !errors.As(err, &failure) {
				t.Fatalf("failed with %v", err)
			}
			return failure, time.Since(began)
		}
		for range 2 * tripAfter {
			failure, took := patient(false)
			if failure.Away || took > 2*time.Second {
				t.Errorf("after %s: %+v", took, failure)
			}
		}
		asked := len(f.times("a"))
		if asked > tripAfter+3 {
			t.Errorf("it was asked %d times", asked)
		}
		if failure, took := patient(true); !failure.Away || failure.After <= 0 || took > 11*time.Second {
			t.Errorf("after %s: %+v", took, failure)
		}
	})
}
