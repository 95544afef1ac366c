package jetpubsub

import (
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// acks sends what ends a delivery, and sends it again until the server has confirmed it. Nobody waits for a
// confirmation: one that never comes costs a delivery that finds nothing to do.
type acks struct {
	nc    *nats.Conn
	inbox string
	sub   *nats.Subscription
	// room bounds the deliveries that are done but not confirmed, and hold no slot any more.
	room int

	mu   sync.Mutex
	next uint64
	open map[uint64]*openAck
	none chan struct{} // closed when none is open, once somebody waits for that
}

// openAck is not confirmed yet.
type openAck struct {
	reply string
	body  []byte
	sent  time.Time
	tries int
	// release gives the slot back, when that was not done yet.
	release func()
}

// ackTries bounds how often an acknowledgement is sent.
const ackTries = 4

func newAcks(nc *nats.Conn, room int) (*acks, error) {
	a := &acks{nc: nc, inbox: nc.NewInbox() + ".", room: room, open: map[uint64]*openAck{}}
	var err error
	a.sub, err = nc.Subscribe(a.inbox+"*", a.confirmed)
	return a, err
}

// send sends an acknowledgement. The slot is free with it, or when too many are open with its confirmation.
func (a *acks) send(reply string, body []byte, release func()) {
	ack := &openAck{reply: reply, body: body, sent: time.Now(), tries: 1}
	a.mu.Lock()
	if len(a.open) >= a.room {
		ack.release, release = release, nil
	}
	id := a.next
	a.next++
	a.open[id] = ack
	a.mu.Unlock()
	_ = a.publish(id, ack) // it will be sent again
	if release != nil {
		release()
	}
}

func (a *acks) publish(id uint64, ack *openAck) error {
	return a.nc.PublishRequest(ack.reply, a.inbox+strconv.FormatUint(id, 10), ack.body)
}

// confirmed takes the server's answers.
func (a *acks) confirmed(m *nats.Msg) {
	if m.Header.Get("Status") != "" {
		return // nobody answers at the moment
	}
	id, err := strconv.ParseUint(m.Subject[len(a.inbox):], 10, 64)
	if err == nil {
		a.close(id)
	}
}

// close ends the care for an acknowledgement.
func (a *acks) close(id uint64) {
	a.mu.Lock()
	ack := a.open[id]
	delete(a.open, id)
	if len(a.open) == 0 && a.none != nil {
		close(a.none)
		a.none = nil
	}
	a.mu.Unlock()
	if ack != nil && ack.release != nil {
		ack.release()
	}
}

// again sends what was not confirmed for a while once more, and gives up what was sent often enough.
func (a *acks) again(after time.Duration) {
	due := map[uint64]*openAck{}
	a.mu.Lock()
	for id, ack := range a.open {
		if time.Since(ack.sent) > after {
			ack.sent = time.Now()
			ack.tries++
			due[id] = ack
		}
	}
	a.mu.Unlock()
	for id, ack := range due {
		if ack.tries > ackTries || a.publish(id, ack) != nil && a.nc.IsClosed() {
			a.close(id)
		}
	}
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
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, ack := range a.open {
		delete(a.open, id)
		if ack.release != nil {
			ack.release()
		}
	}
}
