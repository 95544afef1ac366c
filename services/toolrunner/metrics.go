package toolrunner

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// meter registers the counts of the pool's sandboxes. Where the process has a tool runner already,
// that one's pool is counted.
func (h *pool) meter(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	idle := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rondo_sandboxes_idle",
		Help: "Sandboxes that a tool runner keeps between turns."}, func() float64 {
		return float64(h.idleNow())
	})
	busy := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rondo_sandboxes_busy",
		Help: "Sandboxes of a tool runner that are in use. More than its inputs in work, for long, is a leak."},
		func() float64 {
			return float64(max(0, h.open.Load()-int64(h.idleNow())))
		})
	for _, c := range []prometheus.Collector{idle, busy} {
		if err := r.Register(c); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return err
		}
	}
	return nil
}

// idleNow counts the sandboxes that are kept.
func (h *pool) idleNow() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.boxes)
}
