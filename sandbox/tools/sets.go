package tools

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// rememberedSets bounds the sets that a process keeps: the runs that it works on at once, and some
// whose schemas are large.
const rememberedSets = 64

// Sets makes the tools of the same settings once, not for every turn: schemas of arguments are
// parsed and compiled. It may be used by many at once.
type Sets struct {
	mu      sync.Mutex
	compile func(toolset.Settings) (*Set, error)
	made    *lru.Cache[[sha256.Size]byte, *Set]
}

// NewSets remembers no set yet.
func NewSets() *Sets {
	made, err := lru.New[[sha256.Size]byte, *Set](rememberedSets)
	if err != nil {
		panic(err) // the size above is not positive
	}
	return &Sets{compile: NewSet, made: made}
}

// Set gives the tools of valid settings.
func (s *Sets) Set(settings toolset.Settings) (*Set, error) {
	key, err := digest(settings)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if set, ok := s.made.Get(key); ok {
		return set, nil
	}
	set, err := s.compile(settings)
	if err != nil {
		return nil, err
	}
	s.made.Add(key, set)
	return set, nil
}

// digest names what a set is made of.
func digest(settings toolset.Settings) (key [sha256.Size]byte, err error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return key, fmt.Errorf("tools: %w", err)
	}
	return sha256.Sum256(text), nil
}
