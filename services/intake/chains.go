package intake

import (
	"context"
	"maps"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// rememberedChains bounds the chains whose links are remembered, at about 100 bytes for each link.
// A chain that was forgotten is read again.
const rememberedChains = 1024

// chains knows which facts stand on the chains that outsiders add to. A fact is one fact
// however late its message comes again, so a look-up covers the whole chain; what was read
// of it once is remembered.
type chains struct {
	log   eventlog.Reader
	cache *lru.Cache[string, *chain]
}

type chain struct {
	mu        sync.Mutex
	sequences map[string]uint64 // by event id
}

func newChains(log eventlog.Reader) (*chains, error) {
	cache, err := lru.New[string, *chain](rememberedChains)
	return &chains{log: log, cache: cache}, err
}

// find looks for an event on the chain that ends with last.
func (c *chains) find(ctx context.Context, last events.Event, id string) (events.Event, bool, error) {
	if last.ID == id {
		return last, true, nil
	}
	known := c.chain(last.Chain())
	known.mu.Lock()
	defer known.mu.Unlock()
	if err := c.extend(ctx, known, last); err != nil {
		return events.Event{}, false, err
	}
	seq, found := known.sequences[id]
	if !found {
		return events.Event{}, false, nil
	}
	e, err := c.log.Event(ctx, last.Run, seq)
	return e, err == nil, err
}

func (c *chains) chain(filter string) *chain {
	if known, ok := c.cache.Get(filter); ok {
		return known
	}
	fresh := &chain{sequences: map[string]uint64{}}
	if known, ok, _ := c.cache.PeekOrAdd(filter, fresh); ok {
		return known
	}
	return fresh
}

// extend reads back from the last link to one that is remembered, or to the first one: then what
// was remembered belongs to a stream that is gone.
func (c *chains) extend(ctx context.Context, known *chain, last events.Event) error {
	read := map[string]uint64{}
	for link := last; known.sequences[link.ID] != link.Seq; {
		read[link.ID] = link.Seq
		if link.Prev == 0 {
			known.sequences = read
			return nil
		}
		var err error
		if link, err = c.log.Event(ctx, link.Run, link.Prev); err != nil {
			return err
		}
	}
	maps.Copy(known.sequences, read)
	return nil
}
