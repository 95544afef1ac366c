package health

import (
	"fmt"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events/eventlog"
)

// failures are what fails again and again: each name has a row of failures without a success.
type failures struct {
	pause time.Duration // a row ends when nothing has failed for so long
	least time.Duration // how long a row must last to count

	mu   sync.Mutex
	rows map[string]failureRow
}

type failureRow struct {
	since, last time.Time
	err         error
}

// note adds a failure to the row of a name. A success, whose error is nil, ends the row.
func (f *failures) note(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.rows, name)
		return
	}
	now := time.Now()
	row, known := f.rows[name]
	if !known || now.Sub(row.last) > f.pause {
		row.since = now
	}
	row.last, row.err = now, err
	if f.rows == nil {
		f.rows = map[string]failureRow{}
	}
	f.rows[name] = row
}

// outages gives an outage for each row that goes on and has lasted long enough, and
// forgets the rows that are over.
func (f *failures) outages() (list []Outage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, row := range f.rows {
		if time.Since(row.last) > f.pause {
			delete(f.rows, name)
		} else if row.last.Sub(row.since) >= f.least {
			list = append(list, Outage{Of: name, Since: row.since, Reason: row.err.Error()})
		}
	}
	return list
}

// The times of the rows. lasting is how long a decider or a consumer must fail until it counts.
const (
	lasting = 15 * time.Second
	// deciderPause: a decider that cannot go on is begun again every half a minute.
	deciderPause = 75 * time.Second
	// consumerPause: a stalled consumer fails after an answer that does not come within 12.5 s. One
	// that has not failed for longer waits for a free slot, or for work.
	consumerPause = 20 * time.Second
	// appendPause is how long no append must be slow until they count as quick again. One slow
	// append counts.
	appendPause = 10 * time.Second
	// diskPause is the same of a disk's writes, of which there is one in writeEvery.
	diskPause = 2*writeEvery + Patience
)

// CannotDecide notes that a decider of a run has stopped, and why.
func (m *Monitor) CannotDecide(decider, run string, err error) {
	if m != nil {
		m.deciders.note(decider+" of run "+run, err)
	}
}

// Stalled notes that a consumer gives a service no inputs, and why; nil when it does again.
func (m *Monitor) Stalled(consumer string, err error) {
	if m != nil {
		m.consumers.note(consumer, err)
	}
}

func (m *Monitor) lookAtInputs() {
	stalled := m.consumers.outages()
	if len(stalled) == 0 {
		m.outages.set(InputsStalled)
		return
	}
	if m.outages.has(LogUnreachable) {
		return
	}
	oldest := stalled[0]
	for _, o := range stalled {
		if o.Since.Before(oldest.Since) {
			oldest = o
		}
	}
	m.outages.set(InputsStalled, Outage{
		Since: oldest.Since, Reason: fmt.Sprintf("%d consumers give no inputs, such as %s: %s", len(stalled),
			oldest.Of, oldest.Reason),
	})
}

var errSlowAppends = fmt.Errorf("appends take longer than %s, and nothing of the log refuses them", eventlog.SlowAppend)

// lookAtAppends takes how many appends have been slow by now, and tells of them where nothing that
// is known makes them slow.
func (m *Monitor) lookAtAppends(count int64) {
	_, logIll := m.diskIll(m.o.LogDir)
	switch {
	case m.outages.has(LogUnreachable) || m.outages.has(LogRefusesWrites) ||
		logIll || m.processor.lostTime(m.looked):
		m.appends.note("", nil)
	case count > m.slowAppends:
		m.appends.note("", errSlowAppends)
	}
	m.slowAppends = count
	m.outages.set(AppendsSlow, m.appends.outages()...)
}
