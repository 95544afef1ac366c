package fleet

import (
	"errors"
	"fmt"
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
	// restTime is the rest after an answer that asks for one without saying how long,
	// leastRest the shortest there is.
	restTime  = time.Second
	leastRest = 100 * time.Millisecond
	// abortRest is that of a server which has aborted a turn: long enough that one that does so at
	// once is not asked all the time.
	abortRest = 250 * time.Millisecond
)

// tryAgain is how long a server whose circuit is open rests until it is tried again.
var tryAgain = retry.Policy{First: time.Second, Most: 30 * time.Second}

// tripAfter is how many requests in a row must fail before a server is left alone, and maxCallers
// how many of their callers are remembered.
const (
	tripAfter  = 5
	maxCallers = 4096
)

// outcome is what a request says about its server.
type outcome string

const (
	answered   outcome = "answered"  // with a turn
	refused    outcome = "refused"   // the request is wrong, the key, or the model: the server is well
	throttled  outcome = "throttled" // it has too much to do
	aborted    outcome = "aborted"   // it gave up what was under way, as it does when it takes up new weights
	away       outcome = "away"      // nobody takes requests
	broken     outcome = "broken"    // the connection ended within: it may have gone, too
	failing    outcome = "failed"    // an error, nonsense, or no answer in time
	callerGone outcome = "left"      // the caller has gone, or there is no room here for what he wants
)

func outcomeOf(f *inference.Failure) outcome {
	switch {
	case f == nil:
		return answered
	case errors.Is(f.Err, errScarce), errors.Is(f.Err, inference.ErrBegun), f.Exhausted():
		return callerGone
	case f.Aborted:
		return aborted
	case f.Throttled || f.Status == http.StatusTooManyRequests:
		return throttled
	case f.Away:
		return away
	case f.Class == events.ClassInternal, f.Overflow != nil, f.Status >= 300 && f.Status < 500 &&
		f.Status != http.StatusRequestTimeout:
		return refused
	case f.Status == 0 && f.Class == events.ClassEndpoint && !f.Timeout():
		return broken
	}
	return failing
}

// replica is one inference server as this process knows it. The fleet's lock guards it.
//
// Its circuit opens when nobody takes its connections, or when more requests fail in a row, of
// several callers, than are still under way: what is under way speaks for the server until it ends.
// An open circuit rests, longer each time, and then one request tries whether the server is well.
//
// Behind that stands a ramp, which bounds the requests under way that began since the circuit
// opened last. It begins with one, goes up to what a server that never failed says of itself,
// doubles every rampStep while the server takes requests and few of them fail, and grows by one
// with each answer. Where the server says that it has too much to do, or a fourth of the
// requests fails, it is halved, and grows slowly from there. So a server that comes back cold,
// or that takes over what others dropped, gets as much as it has shown that it can take,
// however long its turns are.
type replica struct {
	url      string
	apart    string    // the model that is asked for words, "" for policies
	used     time.Time // last
	inFlight int
	current  int  // requests under way that began since the circuit opened last
	answered bool // ever
	plain    bool // it takes OpenAI's own fields alone
	stream   streaming
	engine   string // its kind, "" while that is not known
	versions map[string]int64

	noStreamAt time.Time // when it said last that it does not stream

	until    time.Time       // it is not asked before
	failures int             // in a row
	callers  map[string]bool // whose requests have failed in a row since the circuit opened last
	open     bool
	opened   int // times in a row
	last     *inference.Failure
	refuses  time.Time // since when it refuses connections, of one that never answered

	allowed    float64
	threshold  float64 // where the ramp becomes flat
	setbacks   int     // how often the ramp went down
	begun      int     // setbacks when the circuit opened last: what began before tells nothing of the server behind it
	taken      bool    // the server has taken a request since then
	stepped    time.Time
	rates      rateWindow
	reduced    float64 // allowed when the ramp was first reduced and has not come back to; 0: it was not
	reducedBy  string  // why it was last
	reductions int     // since then
	restored   bool    // it has come back there, which was not said yet

	slots    int       // the most that a run lets a process have
	slotsAsk time.Time // when the server may be asked how many requests it samples at once
}

func newReplica(url, apart string) *replica {
	return &replica{url: url, apart: apart, versions: map[string]int64{}, callers: map[string]bool{},
		allowed: 1, threshold: math.Inf(1)}
}

// ready reports whether a request may be sent that is one of so many at most.
func (r *replica) ready(now time.Time, slots int) bool {
	if now.Before(r.until) {
		return false
	}
	if at := r.stepAt(now, slots); !at.IsZero() && !now.Before(at) {
		r.step(now, slots)
	}
	return !r.tried() && r.current < int(r.allowed) && r.inFlight < slots
}

// tried: one request tries whether a server is well whose circuit is open.
func (r *replica) tried() bool { return r.open && r.current > 0 }

// enter counts a request that is sent, and gives what settle is told of it.
func (r *replica) enter() (since int) {
	r.inFlight++
	r.current++
	return r.setbacks
}

// leave gives its place back.
func (r *replica) leave(since int) {
	r.inFlight--
	if since >= r.begun {
		r.current--
	}
}

// resting reports whether it is left alone: until its time, and then while one
// request tries an open circuit.
func (r *replica) resting(now time.Time) bool { return now.Before(r.until) || r.tried() }

// settle notes the outcome of a caller's request that came in after so many setbacks.
func (r *replica) settle(now time.Time, since, slots int, caller string, what outcome, f *inference.Failure) {
	full := r.current >= int(r.allowed)
	r.leave(since)
	switch what {
	case answered:
		r.answered, r.refuses = true, time.Time{}
		r.well(now, since)
		if since >= r.begun && full {
			r.grow(slots)
		}
	case refused:
		r.well(now, since)
	case throttled:
		r.well(now, since)
		r.rest(now, max(f.After, leastRest))
		if since == r.setbacks { // once for all that was under way together
			r.reduce("the server asked for less")
		}
	case aborted: // it can do as much as before
		r.well(now, since)
		r.rest(now, max(f.After, leastRest))
	case away:
		if unreachable(f) {
			if r.refuses.IsZero() && !r.answered && errors.Is(f.Err, syscall.ECONNREFUSED) {
				r.refuses = now
			}
			r.rest(now, restTime)
		}
		if f.After > 0 {
			r.rest(now, f.After)
		}
		r.fail(now, since, caller, f)
	case broken, failing:
		r.fail(now, since, caller, f)
	}
}

// unreachable reports whether nobody took the connection: no request got to a server.
func unreachable(f *inference.Failure) bool { return f.Away && f.Status == 0 }

// well notes that the server has dealt with a request. One that it had before its circuit opened
// says that it is there: it is tried at once.
func (r *replica) well(now time.Time, since int) {
	r.rates.count(now, true)
	switch {
	case since >= r.begun:
		r.open, r.opened = false, 0
	case r.open && r.until.After(now.Add(restTime)):
		r.until = now.Add(restTime)
	}
	if !r.open {
		r.failures = 0
		clear(r.callers)
	}
	r.take(now, since)
}

// take notes that the server has taken a request.
func (r *replica) take(now time.Time, since int) {
	if since >= r.begun && !r.taken {
		r.taken, r.stepped = true, now
	}
}

func (r *replica) rest(now time.Time, d time.Duration) {
	if until := now.Add(d); until.After(r.until) {
		r.until = until
	}
}

// fail counts a failure. The circuit opens when it is the server that is broken; the ramp is
// reduced when too many of its requests are.
func (r *replica) fail(now time.Time, since int, caller string, f *inference.Failure) {
	r.failures++
	last := *f // who asked goes on with its own
	r.last = &last
	if since < r.begun {
		return
	}
	r.rates.count(now, false)
	if len(r.callers) < maxCallers {
		r.callers[caller] = true
	}
	switch {
	case r.open, r.failures >= tripAfter &&
		(len(r.callers) > r.current || unreachable(f) && len(r.callers) >= tripAfter):
		r.trip(now)
	case r.rates.many(r.current):
		r.reduce(fmt.Sprintf("%d of %d requests failed within %s", r.rates.bad, r.rates.bad+r.rates.good, rateTime))
		r.rates = rateWindow{began: now}
	}
}

// trip opens the circuit, and begins the ramp anew.
func (r *replica) trip(now time.Time) {
	r.open = true
	r.opened++
	r.rest(now, tryAgain.Delay(r.opened))
	r.allowed, r.threshold, r.taken = 1, math.Inf(1), false
	r.setbacks++
	r.begun, r.current, r.rates = r.setbacks, 0, rateWindow{}
	r.reduced, r.reductions, r.restored = 0, 0, false
	clear(r.callers)
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

// replica finds what is known of a server, as it serves policies or a model that is asked for
// words. The caller holds the lock.
func (f *Fleet) replica(url, apart string) *replica {
	now := time.Now()
	if r := f.replicas[url+apart]; r != nil {
		r.used = now
		return r
	}
	if len(f.replicas) >= maxReplicas {
		f.forget()
	}
	r := newReplica(url, apart)
	r.used = now
	f.replicas[url+apart] = r
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
		delete(f.replicas, oldest.url+oldest.apart)
		f.metrics.forget(oldest.url)
	}
}
