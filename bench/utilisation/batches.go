package utilisation

import "strconv"

// batches are the two schedules that generate a batch at a time: the barrier trains while nothing
// is generated, and the queue trains on the last batch meanwhile. Both begin a batch when all
// rollouts of the one before have ended.
type batches struct {
	*world
	groups int  // of a batch
	queued bool // a batch may wait for the trainer, as OpenRLHF's --train.async_queue_size 1

	opened   int64 // groups
	open     int   // rollouts of the batch under way
	now      []*rollout
	waiting  [][]*rollout
	training bool
}

func simulateBatches(o Options, workload string, queued bool) (*world, error) {
	b := &batches{world: newWorld(o, workload), groups: o.Groups, queued: queued}
	b.sampled, b.resumed = func(*rollout) {}, func(*rollout) {}
	b.ended = b.end
	b.generate()
	return b.world, b.run()
}

// generate begins the next batch.
func (b *batches) generate() {
	b.now = nil
	for range b.groups {
		b.opened++
		for i, s := range b.load.group(b.opened) {
			b.now = append(b.now, &rollout{shape: s, id: strconv.FormatInt(b.opened, 10) + "-" + strconv.Itoa(i),
				group: b.opened, version: b.version})
		}
	}
	b.open = len(b.now)
	for _, r := range b.now {
		b.begin(r)
	}
}

func (b *batches) end(*rollout) {
	if b.open--; b.open > 0 {
		return
	}
	b.waiting = append(b.waiting, b.now)
	b.goOn()
}

// goOn trains on the batch that waits, and generates the next one where it may.
func (b *batches) goOn() {
	if !b.training && len(b.waiting) > 0 {
		batch := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.training = true
		b.train(batch, func() {
			b.training = false
			b.goOn()
		})
	}
	mayBegin := !b.training
	if b.queued {
		mayBegin = len(b.waiting) < 2
	}
	if b.open == 0 && mayBegin {
		b.generate()
	}
}
