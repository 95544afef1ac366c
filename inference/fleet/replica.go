package fleet

import (
	"context"
	"errors"
	"math"
	"net/http"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/retry"
)

// A server's times.
const (
	// restTime is the rest after an answer that asks for one without saying how long, leastRest the shortest there is.
	restTime  = time.Second
	leastRest = 100 * time.Millisecond
	// abortRest is that of a server which has aborted a turn: long enough that one that does so at once is not asked all the time.
	abortRest = 250 * time.Millisecond
	// rampStep is how long the ramp waits for a window of answers: a turn may take minutes.
	rampStep = 5 * time.Second
)

// tryAgain is how long a server whose circuit is open rests until it is tried again.
var tryAgain = retry.Policy{First: time.Second, Most: 30 * time.Second}

// tripAfter is how many requests in a row must fail before a server is left alone.
const tripAfter = 5

// outcome is what a request says about its server.
type outcome string

const (
	answered  outcome = "answered"  // with a turn
	refused   outcome = "refused"   // the request is wrong, the key, or the model: the server is well
	throttled outcome = "throttled" // it has too much to do
	aborted   outcome = "aborted"   // it gave up what was under way, as it does when it takes up new weights
	away      outcome = "away"      // nobody takes requests
	broken    outcome = "broken"    // the connection ended within: it may have gone, too
	failing   outcome = "failed"    // an error, nonsense, or no answer in time
	left      outcome = "left"      // the caller has gone, or wants more room than there is
)

func outcomeOf(f *inference.Failure) outcome {
	switch {
	case f == nil:
		return answered
	case errors.Is(f.Err, errScarce):
		return left
	case f.Aborted:
		return aborted
	case f.Throttled || f.Status == http.StatusTooManyRequests:
		return throttled
	case f.Away:
		return away
	case f.Class == events.ClassInternal, f.Overflow != nil, f.Status >= 300 && f.Status < 500 && f.Status != http.StatusRequestTimeout:
		return refused
	case f.Status == 0 && f.Class == events.ClassEndpoint && !errors.Is(f.Err, context.DeadlineExceeded):
		return broken
	}
	return failing
}

// replica is one inference server as this process knows it. The fleet's lock guards it.
//
// Its circuit opens when requests fail in a row: it rests, longer each time, and then one request tries whether it is well. Behind
// that stands a ramp. The requests that are under way at once begin with one; each answer allows one more, which doubles them with
// each window of answers, up to half of where the server had too much to do before, and from there on one more with each window. So
// a server that comes back cold, or that takes over what others dropped, gets as much as it has shown that it can do.
type replica struct {
	url      string
	used     time.Time // last
	inFlight int
	answered bool   // ever
	plain    bool   // it takes OpenAI's own fields alone
	engine   string // its kind, "" while that is not known
	versions map[string]int64

	until    time.Time // it is not asked before
	failures int       // in a row
	open     bool
	opened   int // times in a row
	last     *inference.Failure
	refuses  time.Time // since when it refuses connections, of one that never answered

	allowed   float64
	threshold float64 // where the ramp becomes flat
	setbacks  int     // how often the ramp went down: what was asked before says nothing about the time behind it
	warm      bool    // it has answered since the ramp began anew
	doubled   time.Time

	slots int    // the most that a run lets a process have
	share *share // what is agreed with other processes; nil in a process that asks nobody
}

func newReplica(url string) *replica {
	return &replica{url: url, versions: map[string]int64{}, allowed: 1, threshold: math.Inf(1)}
}

// ready reports whether a request may be sent that is one of so many at most.
func (r *replica) ready(now time.Time, slots int) bool {
	if now.Before(r.until) {
		return false
	}
	if at := r.stepAt(slots); !at.IsZero() && !now.Before(at) {
		r.allowed, r.doubled = min(2*r.allowed, r.threshold, float64(slots)), now
	}
	return r.inFlight < r.limit(slots)
}

// resting reports whether it is left alone: until its time, and then while one request tries an open circuit.
func (r *replica) resting(now time.Time) bool {
	return now.Before(r.until) || r.open && r.inFlight > 0
}

// stepAt is when the ramp goes up by itself, as its requests take long and none has failed; zero when it does not.
func (r *replica) stepAt(slots int) time.Time {
	if r.shared() || !r.warm || r.open || r.inFlight < int(r.allowed) || r.allowed >= min(r.threshold, float64(slots)) {
		return time.Time{}
	}
	return r.doubled.Add(rampStep)
}

// settle notes the outcome of a request that came in after so many setbacks.
func (r *replica) settle(now time.Time, setbacks, slots int, what outcome, f *inference.Failure) {
	full := r.inFlight >= min(int(r.allowed), r.limit(slots))
	r.inFlight--
	fresh := setbacks == r.setbacks
	if fresh && (what == answered || what == refused || what == throttled || what == aborted) {
		r.open, r.opened = false, 0 // what was sent to try it has come through
	}
	switch what {
	case answered:
		r.answered, r.failures, r.refuses = true, 0, time.Time{}
		if r.share != nil {
			r.share.answered++
		}
		if !fresh {
			return
		}
		if !r.warm {
			r.warm, r.doubled = true, now
		}
		if full && r.allowed < r.top(slots) {
			r.grow()
		}
	case refused:
		r.failures = 0
	case throttled:
		r.failures = 0
		r.rest(now, max(f.After, leastRest))
		if fresh {
			r.halve()
		}
	case aborted: // it can do as much as before
		r.failures = 0
		r.rest(now, max(f.After, leastRest))
	case away:
		if r.refuses.IsZero() && !r.answered && errors.Is(f.Err, syscall.ECONNREFUSED) {
			r.refuses = now
		}
		r.rest(now, max(f.After, restTime))
		if fresh {
			r.halve()
			r.again()
		}
		r.fail(now, fresh, f)
	case broken, failing:
		if fresh {
			r.halve()
		}
		if fresh && what == broken {
			r.again()
		}
		r.fail(now, fresh, f)
	}
}

func (r *replica) grow() {
	if r.allowed < r.threshold {
		r.allowed++
		return
	}
	r.allowed += 1 / r.allowed
}

// halve lets the ramp go down, once for all that was under way together.
func (r *replica) halve() {
	if r.allowed > 1 {
		r.threshold = max(1, r.allowed/2)
	}
	r.allowed = max(1, r.allowed/2)
	r.setBack()
}

// again begins the ramp anew.
func (r *replica) again() { r.allowed, r.warm = 1, false }

func (r *replica) rest(now time.Time, d time.Duration) {
	if until := now.Add(d); until.After(r.until) {
		r.until = until
	}
}

// fail counts a failure, and opens the circuit when there are too many.
func (r *replica) fail(now time.Time, fresh bool, f *inference.Failure) {
	r.failures++
	r.last = f
	if r.failures < tripAfter || r.open && !fresh {
		return
	}
	r.open = true
	r.opened++
	r.rest(now, tryAgain.Delay(r.opened))
	r.again()
	r.threshold = math.Inf(1)
	r.setBack()
}

// serves notes the version of a policy that the server has sampled with.
func (r *replica) serves(policy string, version int64) {
	const most = 64
	if _, known := r.versions[policy]; !known && len(r.versions) >= most {
		clear(r.versions)
	}
	r.versions[policy] = version
}

// maxReplicas bounds the servers that are remembered: runs come and go.
const maxReplicas = 1024

// replica finds what is known of a server. The caller holds the lock.
func (f *Fleet) replica(url string) *replica {
	now := time.Now()
	if r := f.replicas[url]; r != nil {
		r.used = now
		return r
	}
	if len(f.replicas) >= maxReplicas {
		f.forget()
	}
	r := newReplica(url)
	r.used = now
	if f.board != nil {
		r.share = &share{name: f.member}
	}
	f.replicas[url] = r
	return r
}

// forget drops the server that was idle for longest.
func (f *Fleet) forget() {
	var oldest *replica
	wanted := map[*replica]bool{}
	for _, w := range f.waiting {
		for _, t := range w.among {
			wanted[t.replica] = true
		}
	}
	for _, r := range f.replicas {
		if r.inFlight == 0 && !wanted[r] && (oldest == nil || r.used.Before(oldest.used)) {
			oldest = r
		}
	}
	if oldest != nil {
		delete(f.replicas, oldest.url)
		f.metrics.forget(oldest.url)
	}
}
