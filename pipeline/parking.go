package pipeline

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rondo-rl/rondo/pipeline/jetpubsub"
	"github.com/rondo-rl/rondo/retry"
)

// parkAgain is how long an input waits during an outage until it is tried again.
var parkAgain = retry.Policy{First: time.Second, Most: 15 * time.Second}

// parking is the time that one delivery waits for the ends of outages. Its deliveries are not used up by that, and its slot is free for others.
type parking struct {
	*inputs
	message *message.Message
	waits   int
	unpark  func()
}

// park waits, where an error comes of an outage, and reports whether there is to be another try.
func (p *parking) park(err error) bool {
	kind := Outage(err)
	if _, wished := wishOf(err); wished || kind == "" || p.message.Context().Err() != nil {
		return false
	}
	d := jetpubsub.DeliveryOf(p.message)
	if p.unpark == nil {
		p.unpark = p.env.Health.Parked(p.effect.Name, err)
		p.meter.parked.Inc()
		p.env.Logger.Debug("input parked", "service", p.effect.Name, "subject", d.Msg.Subject(), "sequence", d.Sequence.Stream, "outage", kind, "error", err)
	}
	p.waits++
	return d.Park(p.message.Context(), parkAgain.Delay(p.waits))
}

// end says that the input waits no more.
func (p *parking) end() {
	if p.unpark != nil {
		p.meter.parked.Dec()
		p.unpark()
	}
}
