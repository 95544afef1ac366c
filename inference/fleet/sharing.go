package fleet

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/url"
	"time"

	"github.com/rondo-rl/rondo/retry"
)

// Board is where processes agree on the pace at which they ask servers. Texts are changed by who has read their last version alone.
type Board interface {
	// Read gives the text under a name and its version; nil and 0 where there is none.
	Read(ctx context.Context, name string) (text []byte, version uint64, err error)
	// Write puts a text in place of a version, and reports whether that was still there.
	Write(ctx context.Context, name string, text []byte, version uint64) (written bool, err error)
}

// Times of agreements.
const (
	// agreeEvery is how long a process leaves an agreement as it is while it would like another one. Where nothing changes it waits twice as long each
	// time, up to beatEvery.
	agreeEvery = 100 * time.Millisecond
	// beatEvery is how often it says that it lives, and looks whether others have come.
	beatEvery = time.Second
	// boardTimeout bounds a read and a write.
	boardTimeout = time.Second
	// boardRest is how long it goes on by itself where the board fails.
	boardRest = 10 * time.Second
	// leaveAfter is how long a process that wants nothing of a server stays in its agreement.
	leaveAfter = 30 * time.Second
)

// maxAgreement bounds what is read, in bytes: about 8,000 members.
const maxAgreement = 1 << 20

// ShareBy sets the board on which this process will agree with others on the pace at which servers are asked. Servers that were asked before are asked as before.
//
// A server has one ramp then. A process asks as much as its part of it allows, and the parts are together at most the whole. A process that asks a server alone waits
// for nobody.
func (f *Fleet) ShareBy(board Board, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.board, f.member, f.poke = board, name+"-"+rand.Text()[:8], make(chan struct{}, 1)
}

// Share agrees with others on the board until the context ends, and takes its leave then. machine tells addresses of the machine itself apart, which are another server's on each.
func (f *Fleet) Share(ctx context.Context, machine string) {
	tick := time.NewTicker(agreeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, r := range f.due(time.Now()) {
			f.agree(ctx, r, machine)
		}
		select {
		case <-ctx.Done():
		case <-f.poke:
		case <-tick.C:
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), boardTimeout)
	defer cancel()
	f.withdraw(ctx, machine)
}

// due are the servers about which something is to be said.
func (f *Fleet) due(now time.Time) (list []*replica) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.replicas {
		if r.share != nil && r.share.due(r, f.wantedOf(r), now) {
			list = append(list, r)
		}
	}
	return list
}

// due reports whether it is time to agree anew.
func (s *share) due(r *replica, waiting int, now time.Time) bool {
	since := now.Sub(s.spoke)
	switch {
	case now.Before(s.rests):
		return false
	case !s.joined:
		return waiting > 0
	case since >= beatEvery:
		return true
	}
	if r.setbacks != s.ours || r.allowed != s.allowed {
		s.pause = agreeEvery
	}
	want := r.inFlight + waiting
	return s.others && since >= s.pause && (s.more || want > s.grant && s.grant < r.most() || want == 0 && s.grant > 0 && r.allowed < s.most)
}

// most is its slots.
func (r *replica) most() int {
	if r.slots == 0 {
		return math.MaxInt32
	}
	return r.slots
}

// wantedOf counts the calls that wait for a server, or another one. The caller holds the lock.
func (f *Fleet) wantedOf(r *replica) (n int) {
	for _, w := range f.waiting {
		for _, t := range w.among {
			if t.replica == r {
				n++
			}
		}
	}
	return n
}

// agree reads an agreement, and writes the next one, until nobody is faster.
func (f *Fleet) agree(ctx context.Context, r *replica, machine string) {
	asking, cancel := context.WithTimeout(ctx, boardTimeout)
	defer cancel()
	err := f.change(asking, boardName(r.url, machine), func(a agreement) (agreement, func()) { return f.next(r, a) })
	if err != nil && ctx.Err() == nil {
		f.alone(r, err)
	}
}

// change changes an agreement. When it is written, the change's function is called.
func (f *Fleet) change(ctx context.Context, name string, change func(agreement) (next agreement, written func())) error {
	for try := 1; ; try++ {
		a, version, err := f.read(ctx, name)
		if err != nil {
			return err
		}
		next, done := change(a)
		text, err := json.Marshal(next)
		if err != nil {
			return fmt.Errorf("write an agreement: %w", err)
		}
		if written, err := f.board.Write(ctx, name, text, version); err != nil {
			return err
		} else if written {
			done()
			return nil
		}
		if !raceAgain.Wait(ctx, try) {
			return ctx.Err()
		}
	}
}

// raceAgain is how long a process waits that was not the first to write.
var raceAgain = retry.Policy{First: 2 * time.Millisecond, Most: 50 * time.Millisecond}

// next is what this process makes of an agreement. One that has wanted nothing for long leaves it.
func (f *Fleet) next(r *replica, a agreement) (next agreement, written func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, waiting := time.Now(), f.wantedOf(r)
	if r.inFlight+waiting == 0 && now.Sub(r.used) > leaveAfter {
		r.share.grant, r.share.joined, r.share.others = 0, false, false
		delete(a.Members, r.share.name)
		return a, func() {}
	}
	w := r.say(a, r.most(), waiting, now)
	return w.text, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		r.said(w)
		f.serve(time.Now())
	}
}

// alone goes on without an agreement: a board that fails keeps nobody from asking. What has been granted stays so.
func (f *Fleet) alone(r *replica, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	r.share.rests = now.Add(boardRest)
	if !r.share.joined || r.share.grant == 0 {
		r.share.grant, r.share.others = alone, false
	}
	f.serve(now)
	f.opts.Logger.Warn("ramp not shared", "endpoint", withoutPassword(r.url), "retry_in", boardRest, "error", cause)
}

// withdraw gives back what has been granted.
func (f *Fleet) withdraw(ctx context.Context, machine string) {
	f.mu.Lock()
	names := map[string]string{}
	for _, r := range f.replicas {
		if r.share != nil && r.share.joined {
			names[boardName(r.url, machine)] = r.share.name
		}
	}
	f.mu.Unlock()
	for name, member := range names {
		err := f.change(ctx, name, func(a agreement) (agreement, func()) {
			delete(a.Members, member)
			return a, func() {}
		})
		if err != nil { // the others see that it is silent
			return
		}
	}
}

func (f *Fleet) read(ctx context.Context, name string) (a agreement, version uint64, err error) {
	text, version, err := f.board.Read(ctx, name)
	if err != nil || version == 0 {
		return a, version, err
	}
	if len(text) > maxAgreement || json.Unmarshal(text, &a) != nil {
		return agreement{}, version, nil // what nobody can read is written anew
	}
	return a, version, nil
}

// boardName is a server's name on the board, which shows no password.
func boardName(address, machine string) string {
	sum := sha256.Sum256([]byte(address))
	if local(address) {
		sum = sha256.Sum256([]byte(machine + "\n" + address))
	}
	return hex.EncodeToString(sum[:12])
}

// local reports whether an address is the machine's own.
func local(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}
