package querysampler

import (
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage/projection"
)

// groupsToTry is how many groups an evaluation opens on its tasks.
func (d *Decider) groupsToTry() int64 { return int64(d.cfg.Epochs) * int64(len(d.cfg.Tasks)) }

// tried reports whether an evaluation is over: all its groups are opened, all groups complete,
// and no query waits. A group whose rollouts have failed is not opened again: that they failed
// belongs to what was measured.
func (d *Decider) tried(v projection.View, p *plan, s state) bool {
	if s.Drawn < d.groupsToTry() || s.Running > 0 {
		return false
	}
	for _, err := range projection.Scan[string](v, queries) {
		p.fail(err)
		return false
	}
	return true
}

// roomToTry reports whether another group of an evaluation may be under way. One
// always may, whatever its size.
func (d *Decider) roomToTry(p *plan, s state) bool {
	if d.cfg.InFlight == runfile.AutoInFlight {
		return d.roomToAsk(p, s)
	}
	return s.Running == 0 || (s.Running+1)*int64(d.cfg.GroupSize) <= int64(d.cfg.InFlight)
}
