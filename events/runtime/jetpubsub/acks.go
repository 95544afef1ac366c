package jetpubsub

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// acks sends what ends a delivery, and sends it again until the server has confirmed it. The delivery keeps its
// slot so long, but no goroutine waits. A confirmation that never comes costs a delivery that finds nothing to do.
type acks struct {
	nc    *nats.Conn
	inbox string
	sub   *nats.Subscription

	mu   sync.Mutex
	next uint64
	open map[uint64]*openAck
	none chan struct{} // closed when none is open, once somebody waits for that
}

// openAck is not confirmed yet.
type openAck struct {
	reply   string
	body    []byte
	sent    time.Time
	tries   int
	nobody  int    // how often nobody was there to take it
	release func() // gives the slot back; nil when that was done
}

// ackTries bounds how often an acknowledgement is sent.
const ackTries = 4

func newAcks(nc *nats.Conn) (*acks, error) {
	a := &acks{nc: nc, inbox: nc.NewInbox() + ".", open: map[uint64]*openAck{}}
	var err error
	a.sub, err = nc.Subscribe(a.inbox+"*", a.confirmed)
	return a, err
}

// send sends an acknowledgement. release is called once, when it is confirmed or nothing can be.
func (a *acks) send(reply string, body []byte, release func()) {
	ack := &openAck{reply: reply, body: body, sent: time.Now(), tries: 1, release: release}
	a.mu.Lock()
	id := a.next
	a.next++
	a.open[id] = ack
	a.mu.Unlock()
	_ = a.publish(id, ack) // if not now, it will be sent again
}

func (a *acks) publish(id uint64, ack *openAck) error {
	return a.nc.PublishRequest(ack.reply, a.inbox+strconv.FormatUint(id, 10), ack.body)
}

// confirmed takes the server's answers.
func (a *acks) confirmed(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[len(a.inbox):], 10, 64)
	if err != nil {
		return
	}
	if m.Header.Get("Status") == "" {
		a.settle(id, true)
		return
	}
	// A status says that nobody answers: the consumer is gone, or will be back. Its messages need no slot so long.
	a.settle(id, false)
	a.soon(id)
}

// A server that has just been started takes connections before it takes acknowledgements: 50 ms, doubled seven times, are 13 s.
const (
	firstLook = 50 * time.Millisecond
	looks     = 8
)

// soon sends an acknowledgement again that nobody was there to take.
func (a *acks) soon(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ack := a.open[id]
	if ack == nil || ack.nobody == looks {
		return
	}
	after := firstLook << ack.nobody
	ack.nobody++
	time.AfterFunc(after, func() {
		a.mu.Lock()
		open := a.open[id] != nil
		a.mu.Unlock()
		if open {
			_ = a.publish(id, ack)
		}
	})
}

// settle gives the slot back, and ends the care for an acknowledgement that is done.
func (a *acks) settle(id uint64, done bool) {
	var release func()
	a.mu.Lock()
	if ack := a.open[id]; ack != nil {
		release, ack.release = ack.release, nil
	}
	if done {
		delete(a.open, id)
	}
	if len(a.open) == 0 && a.none != nil {
		close(a.none)
		a.none = nil
	}
	a.mu.Unlock()
	if release != nil {
		release()
	}
}

// again sends what was not confirmed for a while once more, and gives up what was sent often enough.
func (a *acks) again(after time.Duration) {
	due, hopeless := a.due(after)
	for _, id := range hopeless {
		a.settle(id, true)
	}
	for id, ack := range due {
		if a.publish(id, ack) != nil {
			a.settle(id, false)
		}
	}
}

func (a *acks) due(after time.Duration) (due map[uint64]*openAck, hopeless []uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	due = map[uint64]*openAck{}
	for id, ack := range a.open {
		switch {
		case time.Since(ack.sent) < after:
		case ack.tries == ackTries:
			hopeless = append(hopeless, id)
		default:
			ack.sent = time.Now()
			ack.tries++
			due[id] = ack
		}
	}
	return due, hopeless
}

// end waits until all is confirmed, at most for a while, and leaves the inbox.
func (a *acks) end(patience time.Duration) {
	a.mu.Lock()
	none := make(chan struct{})
	if len(a.open) == 0 || a.nc.IsClosed() {
		close(none)
	} else {
		a.none = none
	}
	a.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	}
	_ = a.sub.Unsubscribe()
	for _, id := range a.ids() {
		a.settle(id, true)
	}
}

func (a *acks) ids() []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.open))
}
