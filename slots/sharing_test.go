package slots

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pullTime is how long a pull takes.
const pullTime = time.Millisecond

// load is a tenant with work: so much at once, or always some.
type load struct {
	Tenant
	always bool
	fails  bool
	call   func() time.Duration

	messages int // that wait
	came     chan struct{}

	slotTime time.Duration // of calls since the measurement began
	longest  time.Duration // that a message which found nothing of its tenant in work waited for a slot
	passed   int           // leases that others got meanwhile, at most
}

// play is a service in virtual time, with tenants that have no work, always some, or some now and
// then, and one whose calls hang until they fail.
type play struct {
	*Slots
	loads    map[string]*load
	measured time.Time // from when
	leases   int
	idle     time.Duration // in which a slot was free that one who waited might have had
	runs     time.Duration // the longest such time
	end      chan struct{}
	running  sync.WaitGroup
}

func newPlay(total int) *play {
	return &play{Slots: New(total), loads: map[string]*load{}, end: make(chan struct{})}
}

func (p *play) join(name string, l *load) *load {
	l.Tenant, l.came = p.Tenant(name), make(chan struct{}, 1)
	p.mu.Lock()
	p.loads[name] = l
	p.mu.Unlock()
	p.running.Go(func() { p.pull(l) })
	return l
}

// send gives a tenant work.
func (p *play) send(l *load, n int) {
	p.mu.Lock()
	l.messages += n
	p.mu.Unlock()
	select {
	case l.came <- struct{}{}:
	default:
	}
}

// pull is a subscription: it asks when messages are there, and again before a
// pull ends that left some.
func (p *play) pull(l *load) {
	var request *Request
	for {
		if request == nil && !l.always && p.left(l) == 0 {
			select {
			case <-l.came:
				continue
			case <-p.end:
				return
			}
		}
		if request == nil {
			request = l.Ask(1)
		}
		asked := time.Now()
		p.mu.Lock()
		first, leases := p.tenant(l.name).inWork == 0, p.leases
		p.mu.Unlock()
		var lease *Lease
		select {
		case lease = <-request.Lease():
		case <-p.end:
			p.Forget(request)
			return
		}
		p.mu.Lock()
		p.leases++
		if first && !p.measured.IsZero() {
			l.longest, l.passed = max(l.longest, time.Since(asked)), max(l.passed, p.leases-1-leases)
		}
		p.mu.Unlock()
		time.Sleep(pullTime)
		came := lease.N
		if !l.always {
			p.mu.Lock()
			came = min(came, l.messages)
			l.messages -= came
			p.mu.Unlock()
		}
		for range came {
			p.running.Go(func() { p.work(l) })
		}
		request = nil
		if more := p.left(l); more > 0 {
			request = l.Ask(more)
		}
		p.End(lease, lease.N-came)
	}
}

func (p *play) left(l *load) int {
	if l.always {
		return p.total
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.messages
}

func (p *play) work(l *load) {
	began := time.Now()
	select {
	case <-time.After(l.call()):
	case <-p.end:
		return
	}
	p.mu.Lock()
	if !p.measured.IsZero() {
		l.slotTime += time.Since(later(began, p.measured))
	}
	p.mu.Unlock()
	l.Settled(!l.fails)
}

// fails reports whether the calls of who asks fail. The caller holds mu.
func (p *play) fails(r *Request) bool {
	for name, t := range p.tenants {
		if t == r.tenant {
			return p.loads[name].fails
		}
	}
	return false
}

// watch looks for slots that are free though somebody waits.
func (p *play) watch() {
	now := time.Duration(0)
	for {
		select {
		case <-p.end:
			return
		case <-time.After(pullTime):
		}
		p.mu.Lock()
		wanted := false
		for _, r := range p.waiting {
			wanted = wanted || p.free > 0 && !p.fails(r) || p.free > max(1, p.total/8)
		}
		if wanted {
			now += pullTime
			p.idle, p.runs = p.idle+pullTime, max(p.runs, now)
		} else {
			now = 0
		}
		p.mu.Unlock()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// even gives numbers from 0 to 1 that fill the range evenly, in whatever order goroutines draw
// them: chance alone would give a tenant long calls now and then.
func even() func() float64 {
	var drawn atomic.Uint64
	return func() float64 {
		_, part := math.Modf(float64(drawn.Add(1)) * math.Phi)
		return part
	}
}

// TestSharing plays at random: no slot is free while anyone waits for longer than a pull, those
// that always have work have equal slot time, the one that hangs no more than that, and who comes
// waits for no more than a few leases of others.
func TestSharing(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 7))
		total := []int{1, 2, 4, 8, 16, 24}[random.IntN(6)]
		busy, bursts := 1+random.IntN(5), random.IntN(5)
		hangs := total > 1 && random.IntN(3) > 0
		t.Run(fmt.Sprintf("%d: %d slots, %d busy, %d with bursts, hanging %v", seed, total, busy, bursts, hangs),
			func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { shareAtRandom(t, random, total, busy, bursts, hangs) })
			})
	}
}

func shareAtRandom(t *testing.T, random *rand.Rand, total, busy, bursts int, hangs bool) {
	const settling, measuring, hang = 2 * time.Minute, 4 * time.Minute, time.Minute
	p := newPlay(total)
	steady := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	for i := range 50 { // that nothing comes from
		p.join(fmt.Sprint("idle", i), &load{call: steady(time.Second)})
	}
	var equals []*load
	for i := range busy {
		most := time.Duration(100+random.IntN(3000)) * time.Millisecond
		next := even()
		call := func() time.Duration { return time.Duration(float64(most) * next()) }
		equals = append(equals, p.join(fmt.Sprint("busy", i), &load{always: true, call: call}))
	}
	for i := range bursts {
		l := p.join(fmt.Sprint("burst", i), &load{call: steady(time.Duration(50+random.IntN(500)) * time.Millisecond)})
		pause, messages := time.Duration(1+random.IntN(20))*time.Second, 1+random.IntN(2*total)
		go func() {
			for {
				select {
				case <-p.end:
					return
				case <-time.After(pause):
					p.send(l, messages)
				}
			}
		}()
	}
	hanging := &load{}
	if hangs {
		hanging = p.join("hangs", &load{always: true, fails: true, call: steady(hang)})
	}
	go p.watch()
	time.Sleep(settling)
	p.mu.Lock()
	p.measured, p.idle, p.runs = time.Now(), 0, 0
	p.mu.Unlock()
	time.Sleep(measuring / 2)
	late := p.join("late", &load{call: steady(time.Second)})
	p.send(late, 3)
	time.Sleep(measuring / 2)
	close(p.end)
	p.running.Wait()

	sum := time.Duration(0)
	for _, l := range equals {
		sum += l.slotTime
	}
	equal := sum / time.Duration(busy)
	for i, l := range equals {
		if l.slotTime < equal*9/10 || l.slotTime > equal*11/10 {
			t.Errorf("busy tenant %d has %s of slot time, an equal part is %s", i, l.slotTime, equal)
		}
	}
	if hanging.slotTime > equal*11/10+hang { // a call that began before it counts as a whole
		t.Errorf("the tenant that hangs has %s of slot time, the others %s each", hanging.slotTime, equal)
	}
	if p.runs > 3*pullTime || p.idle > measuring/50 {
		t.Errorf("a slot was free while somebody waited: for %s at once, for %s in all", p.runs, p.idle)
	}
	if tenants := busy + bursts + 2; late.passed > tenants || late.longest > 4*time.Second {
		t.Errorf("who comes late waits for %d leases of others and %s", late.passed, late.longest)
	}
	if late.slotTime != 3*time.Second {
		t.Errorf("the work of who comes late: %s of slot time", late.slotTime)
	}
}

// TestShortAndLongCallsHaveEqualTime: a tenant whose calls are short gives its slots back all the
// time, and has its next pull under way then. It keeps half of the slots beside one that always
// waits, and whose calls keep what they get for a minute.
func TestShortAndLongCallsHaveEqualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const settling, measuring = 5 * time.Minute, 5 * time.Minute
		p := newPlay(8)
		about := func(d time.Duration) func() time.Duration {
			next := even()
			return func() time.Duration { return time.Duration(2 * float64(d) * next()) }
		}
		short := p.join("short", &load{always: true, call: about(20 * time.Millisecond)})
		long := p.join("long", &load{always: true, call: about(time.Minute)})
		time.Sleep(settling)
		p.mu.Lock()
		p.measured = time.Now()
		p.mu.Unlock()
		time.Sleep(measuring)
		close(p.end)
		p.running.Wait()
		// long calls under way are not counted
		if half := measuring * 8 / 2; short.slotTime < half*8/10 || long.slotTime < half*7/10 {
			t.Errorf("short calls have %s of slot time, long ones %s, half is %s", short.slotTime, long.slotTime, half)
		}
	})
}
