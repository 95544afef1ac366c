package projection

import (
	"strings"
	"sync"
)

// firsts remembers, for each prefix, the first key that a scan found. Pebble keeps deleted entries
// for a while, and a scan from the front of a queue passes each of them. Without this, the time of
// a decision would grow with all that is over.
type firsts struct {
	mu   sync.Mutex
	keys map[string]string // by prefix
	puts uint64
	open int // transactions
}

// maxFirsts bounds the prefixes that are remembered; there are a dozen.
const maxFirsts = 256

// begin and end hold a transaction open: what it puts is not seen yet, so no scan meanwhile
// says where the first key is.
func (f *firsts) begin() { f.mu.Lock(); f.open++; f.mu.Unlock() }
func (f *firsts) end()   { f.mu.Lock(); f.open--; f.mu.Unlock() }

// put moves what is remembered back to a key that is written before it.
func (f *firsts) put(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.puts++
	for prefix, first := range f.keys {
		if key < first && strings.HasPrefix(key, prefix) {
			f.keys[prefix] = key
		}
	}
}

// start is where to begin a scan, and the moment of the question.
func (f *firsts) start(prefix string) (first string, at uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if first, ok := f.keys[prefix]; ok {
		return first, f.puts
	}
	return prefix, f.puts
}

// remember remembers the first key that a scan found since a moment, unless
// something was put since then.
func (f *firsts) remember(prefix, first string, at uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.keys[prefix]; at != f.puts || f.open > 0 || !known && len(f.keys) == maxFirsts {
		return
	}
	if f.keys == nil {
		f.keys = map[string]string{}
	}
	f.keys[prefix] = first
}
