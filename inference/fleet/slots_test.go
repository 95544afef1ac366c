package fleet

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestRampBeginsWithWhatTheServerSays: a server that says how many requests it samples at once
// gets this process's part of them at the beginning, and not behind an outage. One that says
// nothing sensible gets one.
func TestRampBeginsWithWhatTheServerSays(t *testing.T) {
	const slots = 512
	down := reply{status: http.StatusInternalServerError}
	for name, c := range map[string]struct {
		page  string
		peers int
		first reply // of all requests in the first minute
		want  int   // requests half a second behind the first one that it takes
	}{
		"300 slots":              {`{"total_slots":300}`, 1, reply{}, 300},
		"300 for three":          {`{"total_slots":300}`, 3, reply{}, 100},
		"more than the run lets": {`{"total_slots":5000}`, 1, reply{}, slots},
		"fewer than generators":  {`{"total_slots":2}`, 3, reply{}, 1},
		"nothing":                {"", 1, reply{}, 1},
		"nonsense":               {`{"total_slots":1e9}`, 1, reply{}, 1},
		"negative":               {`{"total_slots":-4}`, 1, reply{}, 1},
		"behind an outage":       {`{"total_slots":300}`, 1, down, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				servers, farm := newFarm(t, map[string]func(int,
					time.Duration) reply{"a": func(_ int, at time.Duration) reply {
					if at < time.Minute && c.first != (reply{}) {
						return c.first
					}
					return reply{takes: 40 * time.Second}
				}}, func(o *Options) { o.Slots, o.Logger = slots, slog.New(slog.NewTextHandler(&log, nil)) })
				servers.SetPeers(c.peers, true)
				farm.pages = map[string]string{"/props": c.page}
				first, most := time.Duration(-1), 0
				farm.watch = func(_ string, inFlight int, ended *reply) {
					at := time.Since(farm.began)
					if ended != nil || at < time.Minute && c.first != (reply{}) {
						return
					}
					if first < 0 {
						first = at
					}
					if at < first+time.Second/2 {
						most = max(most, inFlight)
					}
				}
				var asking sync.WaitGroup
				for i := range 600 {
					asking.Go(func() {
						for time.Since(farm.began) < 2*time.Minute {
							if _, err := servers.Complete(t.Context(), call(fmt.Sprint(i), slots, "a")); err == nil {
								return
							}
							time.Sleep(time.Second)
						}
					})
				}
				asking.Wait()
				if most != c.want {
					t.Errorf("it had %d requests at first, want %d", most, c.want)
				}
				// of a server that fails, maybe before it has
				said := strings.Count(log.String(), `msg="inference server slots"`)
				if says := c.want > 1 || c.peers == 3; said > 1 || c.first == (reply{}) && says != (said == 1) {
					t.Errorf("it was said %d times", said)
				}
			})
		})
	}
}
