package pipeline

import (
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rondo-rl/rondo/pipeline/jetpubsub"
	"github.com/rondo-rl/rondo/wording"
)

// settle is the middleware that turns a handler's error into what the server is told,
// and logs what is given up.
func (s *effectService) settle(meter *meter) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			out, err := next(m)
			d := jetpubsub.DeliveryOf(m)
			if err == nil || d == nil {
				return out, err
			}
			logger := s.env.Logger.With("service", s.effect.Name, "subject", d.Msg.Subject(),
				"sequence", d.Sequence.Stream, "delivery", d.NumDelivered, "error", err)
			w, wished := wishOf(err)
			switch {
			case wished && w.permanent:
				logger.ErrorContext(m.Context(), "input rejected")
				d.Nacked(jetpubsub.Verdict{Terminate: true, Reason: reason(err)})
			case m.Context().Err() != nil: // the service is stopping: somebody else's turn
				d.Nacked(jetpubsub.Verdict{After: handOver})
			case meter.exhausted(d):
				// The server would drop it without a word about why.
				logger.ErrorContext(m.Context(), "input deliveries exhausted")
				d.Nacked(jetpubsub.Verdict{Terminate: true, Reason: reason(err)})
			case wished:
				d.Nacked(jetpubsub.Verdict{After: w.after})
			case d.NumDelivered&(d.NumDelivered-1) == 0: // the 1st, 2nd, 4th, 8th … time
				logger.WarnContext(m.Context(), "input failed")
			}
			return out, err
		}
	}
}

// reason is an error as an advisory can carry it: one line of bounded length.
func reason(err error) string {
	const most = 1000
	text := strings.Join(strings.Fields(wording.Plain(err).Error()), " ")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
