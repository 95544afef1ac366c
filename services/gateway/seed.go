package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"
)

// seed is what the model samples a call with, until done is called. It follows from the rollout's seed, the turns there are and the
// conversation, so that a call that is repeated samples the same again, and calls that a harness makes at once do not. Two at once
// with the same conversation are counted.
func (g *Gateway) seed(ro *rollout, a *ask) (seed int64, done func(), err error) {
	text := sha256.New()
	fmt.Fprintf(text, "%s/%d/%d/", name(ro.Run, ro.ID), ro.Started.Seed, len(ro.Turns))
	for _, m := range a.conversation { // one after the other: all at once are as large as the conversation again
		if err := json.NewEncoder(text).Encode(m); err != nil {
			return 0, nil, err
		}
	}
	about := [sha256.Size]byte(text.Sum(nil))
	twin, done := g.twins.enter(about)
	sum := sha256.Sum256(fmt.Appendf(about[:], "/%d", twin))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 2), done, nil
}

// twins tell calls apart that are the same and under way at once.
type twins struct {
	mu  sync.Mutex
	are map[[sha256.Size]byte]map[int]bool
}

// enter gives the lowest number that none of a call's twins has; leave gives it back.
func (t *twins) enter(about [sha256.Size]byte) (number int, leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.are == nil {
		t.are = map[[sha256.Size]byte]map[int]bool{}
	}
	if t.are[about] == nil {
		t.are[about] = map[int]bool{}
	}
	for t.are[about][number] {
		number++
	}
	t.are[about][number] = true
	return number, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if delete(t.are[about], number); len(t.are[about]) == 0 {
			delete(t.are, about)
		}
	}
}
