package utilisation

import (
	"slices"
	"strconv"
)

// async is the plainest asynchronous schedule: so many rollouts are in flight, groups are trained
// on as they end, and one that is too old is dropped.
type async struct {
	*world
	groups    int // of a batch
	most      int // rollouts in flight
	staleness int64

	opened   int64 // groups
	inFlight int
	underWay map[int64][]*rollout // groups, with their rollouts that have ended
	ready    [][]*rollout
	training bool
	dropped  int // rollouts, while it was measured
}

// simulateAsync has as many rollouts in flight as Rondo's run says, and one and a half times the
// server's sequences where that says no number.
func simulateAsync(o Options, workload string) (*async, error) {
	a := &async{world: newWorld(o, workload), groups: o.Groups, most: int(o.InFlight), staleness: o.Staleness,
		underWay: map[int64][]*rollout{}}
	if a.most <= 0 {
		a.most = knee * 3 / 2
	}
	a.most = max(a.most, o.GroupSize)
	a.sampled, a.resumed = func(*rollout) {}, func(*rollout) {}
	a.ended = a.end
	a.open()
	return a, a.run()
}

// open begins groups while there is room.
func (a *async) open() {
	for a.inFlight+a.load.size <= a.most {
		a.opened++
		a.inFlight += a.load.size
		for i, s := range a.load.group(a.opened) {
			a.begin(&rollout{shape: s, id: strconv.FormatInt(a.opened, 10) + "-" + strconv.Itoa(i),
				group: a.opened, version: a.version})
		}
	}
}

func (a *async) end(r *rollout) {
	a.inFlight--
	group := append(a.underWay[r.group], r)
	a.underWay[r.group] = group
	if len(group) == a.load.size {
		delete(a.underWay, r.group)
		a.ready = append(a.ready, group)
		a.goOn()
	}
	a.open()
}

// goOn trains on the oldest groups that are ready, where they make a batch.
func (a *async) goOn() {
	if a.training {
		return
	}
	a.ready = slices.DeleteFunc(a.ready, func(group []*rollout) bool {
		stale := a.version-group[0].version > a.staleness
		if stale && a.version >= a.warm && a.version < a.last {
			a.dropped += len(group)
		}
		return stale
	})
	if len(a.ready) < a.groups {
		return
	}
	batch := slices.Concat(a.ready[:a.groups]...)
	a.ready, a.training = a.ready[a.groups:], true
	a.train(batch, func() {
		a.training = false
		a.goOn()
	})
}
