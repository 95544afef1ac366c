package eventlog

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/slots"
)

// TestRequestsTakeTurns: ten runs have a hundred requests each for a server that answers in the
// order in which they come. A run that has one at a time waits for a few of each of them.
func TestRequestsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large, each, few = 10, 100, requestsAtOnce/10 + 2
		type request struct {
			run  string
			over chan struct{}
		}
		l, server := &core{requests: slots.New(requestsAtOnce)}, make(chan request, large*each+1)
		var mu sync.Mutex
		served := map[string]int{}
		counts := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(served)
		}
		go func() {
			for r := range server {
				time.Sleep(time.Millisecond)
				mu.Lock()
				served[r.run]++
				mu.Unlock()
				close(r.over)
			}
		}()
		ask := func(run string) error {
			_, err := l.request(t.Context(), run, kindRead, func() (*nats.Msg, error) {
				r := request{run, make(chan struct{})}
				server <- r
				<-r.over
				return nil, nil
			})
			return err
		}
		stop := make(chan struct{})
		for i := range large * each {
			go func() {
				for ask(fmt.Sprint("large", i/each)) == nil {
					select {
					case <-stop:
						return
					default:
					}
				}
			}()
		}
		time.Sleep(large * each * time.Millisecond) // who asks first has all slots at the start, while nobody else asks
		for range 50 {
			before := counts()
			if err := ask("small"); err != nil {
				t.Fatal(err)
			}
			after := counts()
			for i := range large {
				run := fmt.Sprint("large", i)
				if n := after[run] - before[run]; n > few {
					t.Errorf("a request of the small run waited for %d of run %s", n, run)
				}
			}
		}
		close(stop)
		synctest.Wait()
		time.Sleep(large * each * time.Millisecond)
		synctest.Wait()
		close(server)
	})
}

// TestReadsOfAHangingRun: the appends of a run hang until they fail, and its reads are answered
// meanwhile. It leaves turns to others all the same.
func TestReadsOfAHangingRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hang, read = 5 * time.Second, 10 * time.Millisecond
		l := &core{requests: slots.New(requestsAtOnce)}
		stop := make(chan struct{})
		ask := func(run, kind string, takes time.Duration, err error) {
			_, _ = l.request(t.Context(), run, kind, func() (*nats.Msg, error) {
				time.Sleep(takes)
				return nil, err
			})
		}
		always := func(kind string, takes time.Duration, err error) {
			for {
				select {
				case <-stop:
					return
				default:
					ask("hangs", kind, takes, err)
				}
			}
		}
		for range 2 * requestsAtOnce {
			go always(kindAppend, hang, nats.ErrTimeout)
		}
		for range requestsAtOnce {
			go always(kindRead, read, nil)
		}
		time.Sleep(3 * hang)
		for range 20 {
			began := time.Now()
			ask("small", kindAppend, read, nil)
			if took := time.Since(began); took > 2*read {
				t.Errorf("an append of another run waited for %s", took-read)
			}
			time.Sleep(hang / 7)
		}
		close(stop)
		time.Sleep(3 * hang)
	})
}
