package eventlog

import (
	"context"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/events"
)

const (
	// foldedBytes bounds the rollouts that a Log keeps folded, by the bodies of their links: in
	// memory they are about twice as large, and three times with the notes beside them.
	foldedBytes = 128 << 20
	// foldedLink is what a link takes beside its body.
	foldedLink = 512
	// foldedRollouts bounds their number.
	foldedRollouts = 4096
)

// folds keeps rollouts in flight as they were folded, so that a turn costs its own
// links and not those of all turns before it. They are a cache: a rollout that is not
// here is folded from its chain.
type folds struct {
	mu    sync.Mutex
	kept  *lru.Cache[string, *fold]
	bytes int
}

// fold is a rollout up to its last known link. Only its holder changes it, and
// not what was handed out.
type fold struct {
	mu      sync.Mutex
	rollout events.Rollout
	tail    events.Event // the last link, without its body; no ID before the first one
	bytes   int
	counted int // of bytes, in those of all; guarded by folds.mu
}

func newFolds() (*folds, error) {
	f := &folds{}
	var err error
	f.kept, err = lru.NewWithEvict(foldedRollouts, func(_ string, r *fold) {
		f.bytes -= r.counted
		r.counted = 0
	})
	return f, err
}

// of is what is known of a rollout, which may be nothing.
func (f *folds) of(key string) *fold {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.kept.Get(key)
	if !ok {
		known = &fold{}
		f.kept.Add(key, known)
	}
	return known
}

// count takes what a rollout has grown by; the longest unused ones make room.
func (f *folds) count(key string, r *fold) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept, _ := f.kept.Peek(key); kept != r {
		return // it had to make room: whoever holds it still needs it no more
	}
	f.bytes += r.bytes - r.counted
	r.counted = r.bytes
	for f.bytes > foldedBytes {
		f.kept.RemoveOldest()
	}
}

func (f *folds) drop(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept.Remove(key)
}

func (f *folds) purge() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept.Purge()
}

// Rollout folds a rollout's chain up to its last link. What it gives is the caller's; the turns in
// it are shared and never change.
func (l Reader) Rollout(ctx context.Context, run, id string) (events.Rollout, error) {
	last, err := l.Last(ctx, run, events.RolloutStartedType.Kind(), id)
	if err != nil {
		return events.Rollout{}, err
	}
	key := run + "/" + id
	known := l.folds.of(key)
	known.mu.Lock()
	defer known.mu.Unlock()
	if err := l.extend(ctx, known, last); err != nil {
		l.folds.drop(key)
		known.rollout, known.tail, known.bytes = events.Rollout{}, events.Event{}, 0
		return events.Rollout{}, err
	}
	if known.rollout.Over() {
		l.folds.drop(key)
	} else {
		l.folds.count(key, known)
	}
	return known.rollout.Share(), nil
}

// extend folds what stands behind the links that are known. Where these are not of the chain, they
// were of a stream that is gone.
func (l Reader) extend(ctx context.Context, known *fold, last events.Event) error {
	if same(known.tail, last) {
		return nil
	}
	links, err := l.walk(ctx, last, known.tail.Seq)
	if err != nil {
		return err
	}
	continues := known.tail.ID != "" && len(links) > 0 && links[0].Prev == known.tail.Seq
	if continues {
		before, err := l.Event(ctx, last.Run, known.tail.Seq)
		if err != nil {
			return err
		}
		continues = same(known.tail, before)
	}
	if !continues && known.tail.ID != "" {
		if links, err = l.walk(ctx, last, 0); err != nil {
			return err
		}
	}
	if continues {
		err = known.rollout.Extend(links)
	} else {
		known.rollout, err = events.FoldRollout(links)
		known.bytes = 0
	}
	for _, e := range links {
		known.bytes += len(e.Data) + foldedLink
	}
	known.tail = last
	known.tail.Data = nil
	return err
}

// same reports whether two links are one: a stream that was made again may have
// another at the same sequence.
func same(a, b events.Event) bool {
	return a.Seq == b.Seq && a.ID == b.ID && a.Time.Equal(b.Time)
}
