package jetpubsub

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
)

// settle tells the server that a message is in work until its handler ends and its acknowledgement
// is confirmed, or how else it ended.
func (s *subscription) settle(d *Delivery, m *message.Message, ackWait time.Duration) {
	beat := time.NewTicker(ackWait / 3)
	defer beat.Stop()
	for {
		select {
		case <-m.Acked():
			confirmed := make(chan struct{})
			go func() {
				defer close(confirmed)
				s.confirm(d, ackWait/3)
			}()
			for {
				select {
				case <-confirmed:
					return
				case <-beat.C:
					_ = d.Msg.InProgress() // its turn may be long in coming
				}
			}
		case <-m.Nacked():
			_ = d.refuse() // a refusal that is lost comes to the same as silence: the message comes again
			d.slot.settle(false)
			return
		case <-beat.C:
			_ = d.Msg.InProgress() // a lost one is followed by another
		case <-s.working.Done():
			d.Nacked(Verdict{After: s.cfg.HandOver})
			m.Nack() // in vain, when it was acknowledged at the last moment
		}
	}
}

// A server that has just been started takes connections before it takes acknowledgements: 50 ms,
// doubled seven times, are 6 s.
const (
	ackTries      = 8
	ackAgainAfter = 50 * time.Millisecond
)

// confirm acknowledges a message until the server has confirmed it: an acknowledgement that
// is lost costs another delivery. While the server is away, or the turn for it does not come,
// the message needs no slot.
func (s *subscription) confirm(d *Delivery, patience time.Duration) {
	release := sync.OnceFunc(func() { d.slot.settle(true) })
	defer release()
	defer time.AfterFunc(patience, release).Stop()
	for try := range ackTries {
		var err error
		late := s.cfg.Requests.Do(s.confirming, func() bool {
			ctx, cancel := context.WithTimeout(s.confirming, patience)
			defer cancel()
			err = d.Msg.DoubleAck(ctx)
			return err == nil
		})
		if late != nil || err == nil || s.confirming.Err() != nil || errors.Is(err, nats.ErrConnectionClosed) {
			return
		}
		release()
		rest(s.confirming, ackAgainAfter<<try)
	}
}
