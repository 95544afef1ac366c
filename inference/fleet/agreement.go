package fleet

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// agreement is what processes that ask the same server have agreed on: one ramp, and how many of its requests each of them may have under way.
type agreement struct {
	Allowed   float64 `json:"allowed"`
	Threshold float64 `json:"threshold,omitempty"` // 0: none
	Warm      bool    `json:"warm,omitempty"`
	Setbacks  int     `json:"setbacks,omitempty"`
	Doublings int     `json:"doublings,omitempty"` // that came by time, not by answers
	Members   map[string]member
}

// member is a process that asks the server.
type member struct {
	// Grant bounds its requests under way. The grants of all members add up to what the ramp allows at most. They are more for a while where the ramp
	// went down: requests that were under way end first.
	Grant int `json:"grant"`
	Want  int `json:"want"`  // requests under way and waiting
	Slots int `json:"slots"` // its own bound
	// Answered counts its answers: who has had fewer is first where there is not enough for all.
	Answered int64 `json:"answered"`
	Beat     int64 `json:"beat"` // goes up with each thing that it writes
}

// alone is the grant of a process that asks a server alone: it needs nobody's leave until another one comes, who waits for the next word of it.
const alone = math.MaxInt32

// goneAfter is how long a process may be silent until its grant is given to others.
const goneAfter = 5 * time.Second

// maxAllowed bounds a ramp that is read.
const maxAllowed = 1 << 30

// share is a process's part in an agreement. The fleet's lock guards it.
type share struct {
	name   string // of the process
	grant  int
	joined bool
	// granted is what the last agreement granted; less where the ramp has gone down since.
	granted int
	// Of the last agreement: the ramp, and how often it went down.
	allowed            float64
	setbacks, ours     int // the agreement's, and the replica's then
	doublings          int
	most               float64 // slots of all members
	others             bool
	more               bool // its word is not the last one: requests end that it has no grant for, or it would take more
	beat               int64
	answered, reported int64
	seen               map[string]beat
	spoke              time.Time // when it last agreed
	pause              time.Duration
	rests              time.Time // the board failed: not before that
}

// beat is when a member was first seen with what it wrote last.
type beat struct {
	n  int64
	at time.Time
}

// limit is how many requests may be under way.
func (r *replica) limit(slots int) int {
	n := min(int(r.allowed), slots)
	if r.share != nil {
		n = min(n, r.share.grant)
	}
	return n
}

// top is where the ramp ends.
func (r *replica) top(slots int) float64 {
	if r.share != nil && r.share.others {
		return r.share.most
	}
	return float64(slots)
}

// shared reports whether other processes ask the server, too.
func (r *replica) shared() bool { return r.share != nil && r.share.others }

// setBack counts that the ramp went down. Where others ask the server, nothing is granted until that is agreed.
func (r *replica) setBack() {
	r.setbacks++
	if r.shared() {
		r.share.grant, r.share.more = 0, true
	}
}

// word is what a process is about to write, and what follows for itself when it is written.
type word struct {
	text            agreement
	grant           int
	allowed         float64 // of the replica, before
	setbacks        int
	answered        int64
	now             time.Time
	warm            bool // the replica, before
	others, more    bool
	steppedByItself bool
}

// say makes the next agreement of the one that is written, of this process's part: what its ramp has learnt since, and what it may have under way. Until
// that is written it has no more than before and no more than then.
func (r *replica) say(a agreement, slots, waiting int, now time.Time) word {
	s := r.share
	a.Members = s.living(a.Members, now)
	me, known := a.Members[s.name]
	delete(a.Members, s.name)
	switch {
	case len(a.Members) == 0 && !(known && s.joined && s.others): // nobody else asks the server, nor did before
		a.Allowed, a.Threshold, a.Warm = r.allowed, finite(r.threshold), r.warm
	case !s.joined: // others do
		me.Answered = fewest(a.Members)
	default:
		r.learn(&a)
	}
	s.beat = max(s.beat, me.Beat) + 1
	me.Want, me.Slots, me.Beat = r.inFlight+waiting, slots, s.beat
	me.Answered += s.answered - s.reported
	a.Members[s.name] = me
	a.Allowed = max(1, min(a.Allowed, a.slots()))
	w := word{allowed: r.allowed, setbacks: r.setbacks, answered: s.answered, now: now, warm: r.warm, others: len(a.Members) > 1}
	if w.others && a.stepsUp(s, r, now) {
		a.Allowed = min(2*a.Allowed, cmp.Or(a.Threshold, maxAllowed), a.slots())
		a.Doublings++
		w.steppedByItself = true
	}
	w.grant = alone
	if w.others {
		w.grant = a.grantOf(s.name)
		w.more = r.inFlight > w.grant || me.Want > w.grant && w.grant < slots
	}
	me.Grant = max(w.grant, r.inFlight)
	a.Members[s.name] = me
	w.text = a
	s.grant = min(s.grant, w.grant)
	return w
}

// learn takes what the replica has learnt since the last agreement into the next one.
func (r *replica) learn(a *agreement) {
	s := r.share
	if r.setbacks == s.ours {
		a.Allowed += r.allowed - s.allowed
		a.Warm = a.Warm || r.warm
		return
	}
	a.Allowed, a.Threshold, a.Warm = min(a.Allowed, r.allowed), finite(r.threshold), r.warm
	a.Setbacks++
}

// said takes the agreement over that has been written.
func (r *replica) said(w word) {
	s, fresh := r.share, r.setbacks == w.setbacks
	s.pause = min(max(agreeEvery, 2*s.pause), beatEvery)
	if w.grant != s.granted || w.text.Allowed != s.allowed {
		s.pause = agreeEvery
	}
	s.granted = w.grant
	if !s.joined || w.text.Warm && !r.warm {
		r.doubled = w.now
	}
	if fresh {
		r.allowed += w.text.Allowed - w.allowed
		r.threshold, r.warm = w.text.Threshold, w.text.Warm || r.warm && !w.warm
		if r.threshold == 0 {
			r.threshold = math.Inf(1)
		}
		if s.joined && w.text.Setbacks != s.setbacks && w.setbacks == s.ours {
			r.setbacks++ // somebody else's
			w.setbacks++
		}
		s.grant = w.grant
	}
	if w.steppedByItself || w.text.Doublings != s.doublings {
		r.doubled = w.now
	}
	s.allowed, s.setbacks, s.ours, s.doublings = w.text.Allowed, w.text.Setbacks, w.setbacks, w.text.Doublings
	s.reported, s.joined, s.others, s.spoke, s.most = w.answered, true, w.others, w.now, w.text.slots()
	s.more = w.more || !fresh
}

// living are the members but for those that have been silent for long.
func (s *share) living(members map[string]member, now time.Time) map[string]member {
	living, seen := map[string]member{}, map[string]beat{}
	for name, m := range members {
		b, known := s.seen[name]
		if !known || b.n != m.Beat {
			b = beat{m.Beat, now}
		}
		if name == s.name || now.Sub(b.at) < goneAfter {
			living[name], seen[name] = m, b
		}
	}
	s.seen = seen
	return living
}

// stepsUp: the ramp goes up by itself, as its requests take long and none has failed.
func (a *agreement) stepsUp(s *share, r *replica, now time.Time) bool {
	want := 0
	for _, m := range a.Members {
		want += min(m.Want, m.Slots)
	}
	return a.Warm && s.joined && s.doublings == a.Doublings && !r.open && want >= int(a.Allowed) && a.Allowed < min(cmp.Or(a.Threshold, maxAllowed), a.slots()) &&
		now.Sub(r.doubled) >= rampStep
}

// slots are those of all members together.
func (a *agreement) slots() (n float64) {
	for _, m := range a.Members {
		n += float64(max(0, m.Slots))
	}
	return min(n, maxAllowed)
}

// grantOf is what a member may have: its part of what the ramp allows, as far as the others do not hold it any more.
func (a *agreement) grantOf(name string) int {
	free := int(a.Allowed)
	for other, m := range a.Members {
		if other != name {
			free -= min(max(0, m.Grant), maxAllowed)
		}
	}
	return max(0, min(a.partOf(name), free))
}

// partOf divides what the ramp allows evenly among the members that want it, to nobody more than he may soon use.
func (a *agreement) partOf(name string) int {
	if a.Allowed >= a.slots() {
		return max(0, a.Members[name].Slots)
	}
	var names []string
	for n, m := range a.Members {
		if m.Want > 0 {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(x, y string) int {
		return cmp.Or(cmp.Compare(a.Members[x].Answered, a.Members[y].Answered), strings.Compare(x, y))
	})
	got := map[string]int{}
	for left := int(a.Allowed); left > 0 && len(names) > 0; {
		each, served := max(1, left/len(names)), names[:min(left, len(names))]
		for _, n := range served {
			more := min(each, a.Members[n].most()-got[n])
			got[n] += more
			left -= more
		}
		names = slices.DeleteFunc(names, func(n string) bool { return got[n] >= a.Members[n].most() })
	}
	return got[name]
}

// most is what a member may soon use.
func (m member) most() int { return max(0, min(m.Slots, 2*m.Want+1)) }

// fewest is the least that one of the members has been answered.
func fewest(members map[string]member) int64 {
	least := int64(math.MaxInt64)
	for _, m := range members {
		least = min(least, m.Answered)
	}
	return least
}

// finite writes a threshold.
func finite(threshold float64) float64 {
	if math.IsInf(threshold, 1) {
		return 0
	}
	return threshold
}
