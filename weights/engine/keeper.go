package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/retry"
)

// lookEvery is how often a server is asked which version it serves: one that was started
// again must not go unnoticed.
const lookEvery = 2 * time.Second

// heldEvery is how often a server is asked whether its requests have let an adapter go.
const heldEvery = 5 * time.Second

// awayEvery is how often a server that cannot be asked is asked at least: when it is back it gets
// no turn before it has its version.
const awayEvery = 15 * time.Second

// errAway means that a server does not say which version it serves.
var errAway = errors.New("the server cannot be asked")

// again is how long a server rests that did not take a version up.
var again = retry.Policy{First: time.Second, Most: 2 * time.Minute}

// State is what is known of the version that a replica serves.
type State struct {
	Version Version
	// Lost: it does not serve this version any more, and nobody knows which one it does.
	Lost bool
	// Took is how long it took to load the version.
	Took time.Duration
	// At is when it was found.
	At time.Time
}

// Keeper keeps one engine at the newest version that it is told of.
type Keeper struct {
	Engine Engine
	// Tell says what is known of the replica to those who ask it. Where it
	// fails it is called again.
	Tell func(ctx context.Context, s State) error
	// Failed is told of each attempt that failed, and when the next one follows.
	Failed func(v Version, err error, wait time.Duration)
	// Unproven is told of a version whose fingerprint the engine cannot be asked for.
	Unproven func(v Version)

	mu      sync.Mutex
	aim     *Version
	changed chan struct{}

	told    *State // what was last told
	loading *Version
}

// NewKeeper is a keeper that has nothing to do yet.
func NewKeeper(e Engine) *Keeper {
	return &Keeper{Engine: e, changed: make(chan struct{}, 1), Failed: func(Version, error, time.Duration) {},
		Unproven: func(Version) {}}
}

// Aim is the version that the engine is to serve from now on.
func (k *Keeper) Aim(v Version) {
	k.mu.Lock()
	k.aim = &v
	k.mu.Unlock()
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

func (k *Keeper) target() *Version {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.aim
}

// Needs are the versions whose files the engine may read: what it serves, as far as is known, what
// it loads, and what it is to load. known is false where it may read others.
func (k *Keeper) Needs() (needs []int64, known bool) {
	known = true
	if e, adapters := k.Engine.(*LoRA); adapters {
		needs, known = e.Reads()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range []*Version{k.aim, k.loading} {
		if v != nil {
			needs = append(needs, v.Version)
		}
	}
	if k.told != nil && !k.told.Lost {
		needs = append(needs, k.told.Version.Version)
	}
	return needs, known
}

func (k *Keeper) load(ctx context.Context, v Version) error {
	k.mu.Lock()
	k.loading = &v
	k.mu.Unlock()
	err := k.Engine.Load(ctx, v)
	k.mu.Lock()
	k.loading = nil
	k.mu.Unlock()
	return err
}

// Keep works until the context ends.
func (k *Keeper) Keep(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		wait := lookEvery
		if v := k.target(); v != nil {
			err := k.Bring(ctx, *v)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				failures = 0
			} else {
				failures++
				wait = again.Delay(failures)
				switch {
				case errors.Is(err, errHeld):
					wait = min(wait, heldEvery)
				case errors.Is(err, errAway):
					wait = min(wait, awayEvery)
				}
				k.Failed(*v, err, wait)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-k.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Bring lets the engine serve a version, unless it does, and tells of it when the
// engine itself has said so.
func (k *Keeper) Bring(ctx context.Context, v Version) error {
	took, err := k.bring(ctx, v)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, errKept) {
			return err
		}
		return errors.Join(err, k.noteLost(ctx, v))
	}
	if k.tells(v) {
		return nil
	}
	return k.tell(ctx, State{Version: v, Took: took})
}

// tells reports whether a version was the last that was told, and is not lost.
func (k *Keeper) tells(v Version) bool {
	return k.told != nil && !k.told.Lost && k.told.Version == v
}

func (k *Keeper) tell(ctx context.Context, s State) error {
	s.At = time.Now()
	if err := k.Tell(ctx, s); err != nil {
		return fmt.Errorf("say what the replica serves: %w", err)
	}
	k.mu.Lock()
	k.told = &s
	k.mu.Unlock()
	return nil
}

// noteLost tells that nobody knows what the engine serves. What was told before this process began
// is not known: it is told, too.
func (k *Keeper) noteLost(ctx context.Context, v Version) error {
	switch {
	case k.told == nil:
		return k.tell(ctx, State{Version: v, Lost: true})
	case !k.told.Lost:
		return k.tell(ctx, State{Version: k.told.Version, Lost: true})
	}
	return nil
}

func (k *Keeper) bring(ctx context.Context, v Version) (took time.Duration, err error) {
	label, err := k.Engine.Label(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errAway, err)
	}
	if label == v.Label() && k.tells(v) {
		return 0, nil
	}
	// it was started again, or somebody else has changed it
	if k.told != nil && !k.told.Lost && label != k.told.Version.Label() {
		if err := k.noteLost(ctx, v); err != nil {
			return 0, err
		}
	}
	if label == v.Label() { // the side-car before this one may have died before its last request
		if err := k.Engine.Resume(ctx); err != nil {
			return 0, err
		}
	} else {
		began := time.Now()
		if err := k.load(ctx, v); err != nil {
			return 0, fmt.Errorf("load version %d: %w", v.Version, err)
		}
		took = time.Since(began)
		if label, err = k.Engine.Label(ctx); err != nil {
			return 0, err
		}
		if label != v.Label() {
			return 0, fmt.Errorf("load version %d: the server has taken it, and says that it serves %.80q", v.Version,
				label)
		}
	}
	return took, k.prove(ctx, v)
}

// prove compares the version's fingerprint with what the engine computes. An engine that computes
// other things is made to say so.
func (k *Keeper) prove(ctx context.Context, v Version) error {
	f, err := readFingerprint(v.Dir)
	if err != nil || f == nil {
		return err
	}
	err = f.agrees(ctx, k.Engine)
	if errors.Is(err, ErrNoLogprobs) {
		k.Unproven(v)
		return nil
	}
	if errors.Is(err, errOther) {
		err = errors.Join(err, k.Engine.Refuse(context.WithoutCancel(ctx), v))
	}
	if err != nil {
		return fmt.Errorf("version %d: %w", v.Version, err)
	}
	return nil
}
