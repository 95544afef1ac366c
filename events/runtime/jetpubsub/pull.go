package jetpubsub

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// nextSubject is where messages of a durable consumer are asked for.
const nextSubject = "$JS.API.CONSUMER.MSG.NEXT."

// idleHeartbeat is how often the server shows that it still knows a resting pull.
const idleHeartbeat = 5 * time.Second

// answerWithin bounds a pull that takes what is there.
const answerWithin = 5 * time.Second

// errLost: the server may have forgotten the pull.
var errLost = errors.New("the pull was lost")

// errGone: the server knows no such consumer, or not at this moment.
var errGone = errors.New("the consumer is not there")

// puller asks for the messages of one consumer over an inbox that it keeps.
type puller struct {
	nc       *nats.Conn
	next     string // subject of requests
	statuses chan nats.Status
	// accept takes a message over, with its slot.
	accept func(*nats.Msg)

	inbox   string
	sub     *nats.Subscription
	arrived chan *nats.Msg
	pulls   int
	room    int
}

// newPuller makes a puller of pulls of at most room messages.
func newPuller(nc *nats.Conn, stream, consumer string, room int, accept func(*nats.Msg)) *puller {
	return &puller{nc: nc, next: nextSubject + stream + "." + consumer, statuses: nc.StatusChanged(nats.CONNECTED), accept: accept, room: room}
}

// close ends the puller; messages that are on their way come again after the consumer's AckWait.
func (p *puller) close() {
	p.nc.RemoveStatusListener(p.statuses)
	if p.sub != nil {
		_ = p.sub.Unsubscribe()
	}
}

// listen opens a new inbox where there is none.
func (p *puller) listen() error {
	if p.sub != nil {
		return nil
	}
	p.inbox = p.nc.NewInbox() + "."
	// The server sends what was asked for and some words about it.
	p.arrived = make(chan *nats.Msg, p.room+64)
	var err error
	p.sub, err = p.nc.ChanSubscribe(p.inbox+"*", p.arrived)
	return err
}

// pullRequest is the body of a request for n messages. patience 0: those that are there now.
func pullRequest(n int, patience, heartbeat time.Duration) []byte {
	if patience == 0 {
		return fmt.Appendf(nil, `{"batch":%d,"no_wait":true}`, n)
	}
	return fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, n, patience, heartbeat)
}

// pull asks for as many messages as the loan has slots, and takes over those that come until the pull is over.
// It returns how many came.
func (p *puller) pull(ctx context.Context, l *loan) (came int, err error) {
	if err := p.listen(); err != nil {
		return 0, err
	}
	heartbeat, silence := time.Duration(0), answerWithin
	if l.patience >= 4*idleHeartbeat {
		heartbeat, silence = idleHeartbeat, 5*idleHeartbeat/2
	}
	p.pulls++
	reply := p.inbox + strconv.Itoa(p.pulls)
	if err := p.nc.PublishRequest(p.next, reply, pullRequest(l.n, l.patience, heartbeat)); err != nil {
		return 0, err
	}
	came, err = p.collect(ctx, l, reply, silence)
	if errors.Is(err, errLost) {
		p.abandon()
	}
	return came, err
}

// collect receives what a pull brings.
func (p *puller) collect(ctx context.Context, l *loan, reply string, silence time.Duration) (came int, err error) {
	watchdog := time.NewTimer(silence)
	defer watchdog.Stop()
	for came < l.n {
		select {
		case m := <-p.arrived:
			over, status, err := p.status(m, reply)
			if over {
				return came, err
			}
			if status {
				watchdog.Reset(silence)
				continue
			}
			came++
			p.accept(m)
		case <-l.recall:
			return came + p.withdraw(), nil
		case <-ctx.Done():
			return came + p.withdraw(), nil
		case <-p.statuses:
			return came, fmt.Errorf("%w: reconnected", errLost)
		case <-watchdog.C:
			return came, fmt.Errorf("%w: no word for %s", errLost, silence)
		}
	}
	return came, nil
}

// status tells what the server says about a pull from messages, whose subject is never the inbox. over: the
// pull of this reply subject has ended, with an error when the next one needs to wait.
func (p *puller) status(m *nats.Msg, reply string) (over, status bool, err error) {
	if !strings.HasPrefix(m.Subject, p.inbox) {
		return false, false, nil
	}
	if m.Subject != reply {
		return false, true, nil // of an earlier pull
	}
	description := m.Header.Get("Description")
	switch m.Header.Get("Status") {
	case "100":
		return false, true, nil
	case "404", "408":
		return true, true, nil
	case "503":
		return true, true, errGone
	case "409":
		if strings.Contains(description, "Deleted") {
			return true, true, fmt.Errorf("%w: %s", errGone, description)
		}
	}
	return true, true, fmt.Errorf("%w: %s %s", errLost, m.Header.Get("Status"), description)
}

// withdraw ends a pull from this side: the server drops a request whose inbox nobody listens on. What it sent
// before that is taken over.
func (p *puller) withdraw() (came int) {
	err := p.sub.Drain()
	if err == nil {
		err = p.nc.FlushTimeout(answerWithin)
	}
	for {
		select {
		case m := <-p.arrived:
			if !strings.HasPrefix(m.Subject, p.inbox) {
				came++
				p.accept(m)
			}
		default:
			if err != nil {
				p.abandon()
			}
			p.sub = nil
			return came
		}
	}
}

// abandon leaves the inbox, so that nothing comes late.
func (p *puller) abandon() {
	if p.sub != nil {
		_ = p.sub.Unsubscribe()
		p.sub = nil
	}
}
