package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/tests/power/forgetful"
	"github.com/rondo-rl/rondo/tests/program"
	"github.com/rondo-rl/rondo/tests/smalldisk"
)

// moodyDisk is a disk that can be made read-only while files of it are open, which the kernel's own
// file systems refuse, and slow.
func (tr *trial) moodyDisk() (dir string) {
	dir, tr.disk = tr.t.TempDir(), forgetful.NewDisk()
	unmount, err := forgetful.Mount(tr.disk, dir)
	if err != nil {
		program.Missing(tr.t, "%v", err)
	}
	tr.t.Cleanup(func() { _ = unmount() })
	return dir
}

// readOnly lets the disk take no writes until the log refuses what is new, and some time longer.
func (tr *trial) readOnly(ctx context.Context) {
	tr.disk.ReadOnly(true)
	defer tr.disk.ReadOnly(false)
	tr.refused(ctx)
	retry.Sleep(ctx, time.Duration(tr.chance.Int64N(int64(3*time.Second))))
}

// slow lets syncs take up to a fifth of a second, for some seconds, and one in eight of those that
// follow appends longer than a client waits for an answer.
func (tr *trial) slow(ctx context.Context) {
	chance := &dice{rng: rand.New(rand.NewPCG(tr.chance.Uint64(), 5))}
	tr.disk.Slow(func(file string) time.Duration {
		if strings.HasSuffix(file, ".blk") && chance.one(8) {
			return 6 * time.Second
		}
		return chance.upTo(200 * time.Millisecond)
	})
	defer tr.disk.Slow(nil)
	retry.Sleep(ctx, 8*time.Second)
}

// full fills the disk until the log refuses what is new, and makes room.
func (tr *trial) full(ctx context.Context) {
	free := smalldisk.Fill(tr.t, tr.orders.Dir)
	defer free()
	tr.refused(ctx)
}

// nobody is a rollout that there is not.
const nobody = "nobody"

// refused waits until the log takes no submission, each of which needs more than what a
// block of the disk has left.
func (tr *trial) refused(ctx context.Context) {
	text := strings.Repeat("x", 100<<10)
	for range 100 {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := tr.log.Submitter.Submit(asking, eventlog.Submission{Run: run, Type: events.RolloutAnnotatedType,
			Entity: nobody, Data: events.RolloutAnnotated{Text: text}})
		cancel()
		if err != nil && !errors.Is(err, eventlog.ErrRefused) {
			return
		}
	}
}
