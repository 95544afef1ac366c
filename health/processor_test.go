package health

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// planted is a process whose threads run and wait as a test says.
type planted struct {
	*Processor
	used usage
}

func plant() *planted {
	p := &planted{}
	p.Processor = &Processor{read: func() map[string]usage { return map[string]usage{"1": p.used} }}
	p.begin(time.Now())
	return p
}

// look lets the time until a look pass, and so much more.
func (p *planted) look(late, ran, waits time.Duration) {
	time.Sleep(wakeEvery + late)
	p.used.ran += ran
	p.used.waits += waits
	p.woke(time.Now())
}

// starve lets a process get no processor for so many looks.
func (p *planted) starve(looks int) {
	for range looks {
		p.look(0, 10*time.Millisecond, wakeEvery)
	}
}

// TestStarvedProcess: a process that waits for a processor for far longer than it has one is
// starved, and so is one whose timers fire late again and again. A busy machine, a process that has
// nothing to do, and one that was stopped once are none.
func TestStarvedProcess(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		late, ran, waits time.Duration // of each look
		first            time.Duration // how late the first one is
		want             string
	}{
		"well":                        {0, 100 * ms, 5 * ms, 0, ""},
		"beside eight on two":         {5 * ms, 200 * ms, 2000 * ms, 0, ""},
		"beside ninety on two":        {20 * ms, 20 * ms, 900 * ms, 0, "waited for a processor for "},
		"no turn at all":              {0, 0, time.Second, 0, "and had one for 0s"},
		"nothing to do beside ninety": {50 * ms, ms, 50 * ms, 0, ""},
		"stopped for an hour":         {0, 100 * ms, 5 * ms, time.Hour, ""},
		"timers that are late": {1500 * ms, 100 * ms, 5 * ms, 0,
			"timers of this process fired late within 10s, by up to 1.5s"},
		"timers that are nearly late": {999 * ms, 100 * ms, 5 * ms, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, began := plant(), time.Now()
				p.look(c.first+c.late, c.ran, c.waits)
				if lost := p.lostTime(began); lost != (c.first >= veryLate || c.late >= veryLate) {
					t.Errorf("after one look it lost time: %v", lost)
				}
				for range 5 {
					p.look(c.late, c.ran, c.waits)
				}
				how := p.Starved()
				if (how != "") != (c.want != "") || !strings.Contains(how, c.want) {
					t.Errorf("starved: %q, want %q", how, c.want)
				}
				if p.lostTime(time.Now()) != (how != "") {
					t.Errorf("starved: %q, and loses time: %v", how, how == "")
				}
				for range 11 {
					p.look(0, 100*ms, ms)
				}
				if how := p.Starved(); how != "" || p.lostTime(time.Now()) {
					t.Errorf("starved after 11 s in which it was well: %q", how)
				}
			})
		})
	}
}

// TestLookThatIsOverdue: a process that waits for its look now is known by that.
func TestLookThatIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plant()
		p.look(2*time.Second, 0, 0)
		began := time.Now()
		if p.Starved() != "" || p.lostTime(began) {
			t.Error("after one late look it is starved")
		}
		time.Sleep(wakeEvery + veryLate)
		if how := p.Starved(); !strings.HasPrefix(how, "2 timers") || !p.lostTime(began) {
			t.Errorf("with a second look that is overdue: %q", how)
		}
	})
}

// TestThreads: this process's own threads run.
func TestThreads(t *testing.T) {
	ran := func() (sum time.Duration) {
		for _, u := range threads() {
			sum += u.ran
		}
		return sum
	}
	before := ran()
	if len(threads()) == 0 {
		t.Skip("this kernel keeps no statistics of threads")
	}
	for began := time.Now(); ran() <= before; {
		if time.Since(began) > time.Minute {
			t.Fatal("it works for a minute, and none of its threads has run")
		}
	}
}
