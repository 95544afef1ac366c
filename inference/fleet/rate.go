package fleet

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// Bucket is a token bucket that holds a minute's worth and may go into debt, as the size of an
// answer is known afterwards.
type Bucket struct {
	PerMinute float64 // 0: no limit
	spent     float64 // of what it holds
	at        time.Time
}

// Wait fills the bucket up to now, and says how long it takes until it holds n.
func (b *Bucket) Wait(now time.Time, n float64) time.Duration {
	if b.PerMinute == 0 {
		return 0
	}
	if past := now.Sub(b.at); past > 0 {
		b.spent, b.at = max(0, b.spent-past.Minutes()*b.PerMinute), now
	}
	missing := b.spent + min(n, b.PerMinute) - b.PerMinute
	return max(0, time.Duration(min(60, missing/b.PerMinute)*float64(time.Minute)))
}

// Take takes n out of it.
func (b *Bucket) Take(n float64) {
	if b.PerMinute > 0 {
		b.spent += n
	}
}

// maxRates bounds the runs whose rate is remembered.
const maxRates = 4096

// rates are the tokens that runs have asked for.
type rates struct {
	mu   sync.Mutex
	runs *lru.Cache[string, *Bucket]
}

func newRates() *rates {
	runs, err := lru.New[string, *Bucket](maxRates)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &rates{runs: runs}
}

func (r *rates) bucket(c Call) *Bucket {
	b, ok := r.runs.Get(c.Run)
	if !ok {
		b = &Bucket{}
		r.runs.Add(c.Run, b)
	}
	b.PerMinute = float64(c.Config.Limits.TokensPerMinute)
	return b
}

func (r *rates) wait(c Call) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bucket(c).Wait(time.Now(), 1)
}

func (r *rates) take(c Call, tokens int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(c)
	b.Wait(time.Now(), 0)
	b.Take(float64(tokens))
}

// withinRate waits until the run may ask for more, within the call's patience.
func (f *Fleet) withinRate(ctx context.Context, c Call) error {
	if c.Config.Limits.TokensPerMinute == 0 {
		return nil
	}
	for {
		wait := f.rates.wait(c)
		if wait == 0 {
			return nil
		}
		wait = max(wait, leastRest)
		if time.Now().Add(wait).After(c.Until) {
			return &inference.Failure{
				Class: events.ClassEndpoint, Status: http.StatusTooManyRequests, Throttled: true, After: wait,
				Err: fmt.Errorf("run %s has used up its %d tokens a minute", c.Run, c.Config.Limits.TokensPerMinute),
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}
