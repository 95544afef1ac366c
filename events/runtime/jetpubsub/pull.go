package jetpubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// pullsUnderWay bounds the pulls of one subscription at once: while one is answered, slots that became free
// since are asked for by the next.
const pullsUnderWay = 2

// errLost: the server may have forgotten the pulls.
var errLost = errors.New("the pull was lost")

// errGone: the server knows no such consumer, or not at this moment.
var errGone = errors.New("the consumer is not there")

// puller asks for the messages of one consumer, as many as there are slots for, over an inbox that it keeps.
type puller struct {
	nc       *nats.Conn
	next     string // subject of requests
	slots    party
	room     int
	statuses chan nats.Status
	// accept takes a message over, with its slot, and reports how many wait behind it.
	accept func(*nats.Msg) (pending uint64)

	inbox   string
	sub     *nats.Subscription
	arrived chan *nats.Msg
	sent    int
	under   []*pull // under way: the server serves the oldest first
	pending uint64  // messages that waited behind the last one
	vain    time.Duration
	heard   time.Time // when the server was heard of last
}

// pull is a request that the server has not answered in full.
type pull struct {
	*loan
	reply string
	came  int
}

// newPuller makes a puller of pulls of at most room messages.
func newPuller(nc *nats.Conn, c Consumer, slots party, room int, accept func(*nats.Msg) uint64) *puller {
	return &puller{
		nc: nc, next: nextSubject + c.Stream + "." + c.Durable, slots: slots, room: room,
		statuses: nc.StatusChanged(nats.CONNECTED), accept: accept, vain: vainRest,
	}
}

// run pulls until the context ends, or until something is wrong: errLost, errGone, or an error of the connection.
func (p *puller) run(ctx context.Context) (err error) {
	defer p.close()
	var asked *request // for slots
	defer func() {
		if asked != nil {
			p.slots.forget(asked)
		}
	}()
	watchdog := time.NewTimer(answerWithin)
	defer watchdog.Stop()
	for ctx.Err() == nil {
		if asked == nil && p.wantsMore() {
			asked = p.slots.ask(p.want(), p.pending > 0)
		}
		select {
		case l := <-asked.loan():
			asked = nil
			if err := p.send(l); err != nil {
				return err
			}
			watchdog.Reset(p.silence())
		case m := <-p.arrived:
			if err := p.receive(m); err != nil {
				return err
			}
		case <-p.recalled():
			p.withdraw()
		case <-p.statuses:
			return fmt.Errorf("%w: reconnected", errLost)
		case <-watchdog.C:
			if len(p.under) == 0 {
				break // the next pull winds it up
			}
			quiet := time.Since(p.heard)
			if quiet >= p.silence() {
				return fmt.Errorf("%w: no word for %s", errLost, quiet)
			}
			watchdog.Reset(p.silence() - quiet)
		case <-ctx.Done():
		}
		p.restInVain(ctx)
	}
	p.withdraw()
	return nil
}

// close leaves the inbox: messages that are on their way come again after the consumer's AckWait.
func (p *puller) close() {
	p.nc.RemoveStatusListener(p.statuses)
	if p.sub != nil {
		_ = p.sub.Unsubscribe()
		p.sub = nil
	}
	p.endAll()
}

// wantsMore reports whether another pull is of use: there is none, or more messages wait than were asked for.
func (p *puller) wantsMore() bool {
	return len(p.under) == 0 || len(p.under) < pullsUnderWay && p.pending > p.expected()
}

// expected is how many messages pulls under way still have room for.
func (p *puller) expected() (n uint64) {
	for _, u := range p.under {
		n += uint64(u.n - u.came)
	}
	return n
}

func (p *puller) want() int {
	return int(min(max(p.pending, p.expected()+1)-p.expected(), uint64(p.room)))
}

// send asks for as many messages as the loan has slots.
func (p *puller) send(l *loan) error {
	p.sent++
	u := &pull{loan: l}
	p.under = append(p.under, u)
	if err := p.listen(); err != nil {
		return err
	}
	u.reply = p.inbox + strconv.Itoa(p.sent)
	p.heard = time.Now()
	return p.nc.PublishRequest(p.next, u.reply, pullRequest(l.n, l.patience))
}

// listen opens a new inbox where there is none.
func (p *puller) listen() (err error) {
	if p.sub != nil {
		return nil
	}
	p.inbox = p.nc.NewInbox() + "."
	// The server sends what was asked for and some words about it.
	p.arrived = make(chan *nats.Msg, pullsUnderWay*p.room+64)
	p.sub, err = p.nc.ChanSubscribe(p.inbox+"*", p.arrived)
	return err
}

// pullRequest is the body of a request for n messages. patience 0: those that are there now.
func pullRequest(n int, patience time.Duration) []byte {
	if patience == 0 {
		return fmt.Appendf(nil, `{"batch":%d,"no_wait":true}`, n)
	}
	if !beats(patience) {
		return fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, n, patience)
	}
	return fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, n, patience, idleHeartbeat)
}

// beats reports whether the server shows in between that it knows a pull of this patience.
func beats(patience time.Duration) bool { return patience >= 4*idleHeartbeat }

// silence is how long the server may say nothing about the pulls under way.
func (p *puller) silence() time.Duration {
	if n := len(p.under); n > 0 && beats(p.under[n-1].patience) {
		return 5 * idleHeartbeat / 2
	}
	return answerWithin
}

// receive takes a message, or what the server says about a pull.
func (p *puller) receive(m *nats.Msg) error {
	p.heard = time.Now()
	if strings.HasPrefix(m.Subject, p.inbox) { // the subject of a message is never the inbox
		return p.status(m)
	}
	i := slices.IndexFunc(p.under, func(u *pull) bool { return u.came < u.n })
	if i < 0 {
		_ = p.nc.Publish(m.Reply, nak(0)) // more than was asked for: there is no slot
		return nil
	}
	u := p.under[i]
	u.came++
	p.pending = p.accept(m)
	p.vain = vainRest
	if u.came == u.n {
		p.end(i)
	}
	return nil
}

// status takes what the server says about a pull: it is well, it has ended, or something is wrong.
func (p *puller) status(m *nats.Msg) error {
	i := slices.IndexFunc(p.under, func(u *pull) bool { return u.reply == m.Subject })
	if i < 0 {
		return nil // an earlier one
	}
	status, description := m.Header.Get("Status"), m.Header.Get("Description")
	switch {
	case status == "100":
		return nil
	case status == "404" || status == "408":
		p.end(i)
		p.pending = 0
		return nil
	case status == "503" || status == "409" && strings.Contains(description, "Deleted"):
		return fmt.Errorf("%w: %s %s", errGone, status, description)
	}
	return fmt.Errorf("%w: %s %s", errLost, status, description)
}

// end ends a pull; the slots that no message came for are free again.
func (p *puller) end(i int) {
	u := p.under[i]
	p.under = slices.Delete(p.under, i, i+1)
	p.slots.end(u.loan, u.n-u.came)
	// A pull that was to rest and could not: others need the slots more, so look again later.
	if u.came == 0 && u.patience > 0 && (u.patience < patience || u.wasRecalled()) {
		p.vain = min(2*p.vain, vainRestMost)
	}
}

func (p *puller) endAll() {
	for len(p.under) > 0 {
		p.end(0)
	}
}

// Rests of a subscription that has nothing to do and few slots to look with, doubling.
const (
	vainRest     = 5 * time.Millisecond
	vainRestMost = 500 * time.Millisecond
)

// restInVain rests after pulls that were to be short and brought nothing.
func (p *puller) restInVain(ctx context.Context) {
	if p.vain > vainRest && len(p.under) == 0 {
		rest(ctx, p.vain/2)
	}
}

// recalled is closed when another subscription needs the slot of the pull that rests on one.
func (p *puller) recalled() <-chan struct{} {
	if len(p.under) == 1 && p.under[0].patience > 0 {
		return p.under[0].recall
	}
	return nil
}

// withdraw ends the pulls from this side: the server drops a request whose inbox nobody listens on. What it sent
// before that is taken over.
func (p *puller) withdraw() {
	if p.sub == nil {
		return
	}
	if err := p.sub.Drain(); err == nil {
		_ = p.nc.FlushTimeout(answerWithin)
	}
	for taken := true; taken; {
		select {
		case m := <-p.arrived:
			_ = p.receive(m)
		default:
			taken = false
		}
	}
	_ = p.sub.Unsubscribe() // drained, or never to be
	p.sub = nil
	p.endAll()
}
