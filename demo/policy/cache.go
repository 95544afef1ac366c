package policy

import (
	"maps"
	"math"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"
)

// What is derived from a file's text alone is derived once: the rollouts of a group, and the trainer after them, look at the same
// files again and again. Both caches hold pure functions of their keys, so they change nothing but the time.
var (
	derivedFacts     = newCache[*fileFacts](1024)
	derivedMutations = newCache[[]mutation](4096)
	derivedPromises  = newCache[float64](16384)
)

func newCache[V any](size int) *lru.Cache[uint64, V] {
	c, err := lru.New[uint64, V](size)
	if err != nil {
		panic(err) // only for a size below one
	}
	return c
}

// contentKey digests a file's name and text.
func (f *file) contentKey() uint64 {
	if f.key == 0 {
		h := hashString(hashSeed, f.path)
		for _, line := range f.lines {
			h = hashString(h, line)
		}
		f.key = h
	}
	return f.key
}

// surroundings digests what else the mutations of a line depend on: constants that the conversation showed, and the other files.
func (s *state) surroundings() uint64 {
	h := hashSeed
	for _, n := range s.digit {
		h = hashString(h, n)
	}
	for _, q := range s.quote {
		h = hashString(h, q)
	}
	s.eachFile(func(f *file) {
		if f.read && !s.excluded(f) {
			h = hashInt(h^f.contentKey(), 0)
		}
	})
	return h
}

// mutations lists what can be changed at a line of a file.
func (s *state) mutations(f *file, line int) []mutation {
	key := hashInt(mix(f.contentKey())^s.surroundings(), line)
	if known, ok := derivedMutations.Get(key); ok {
		return known
	}
	list := s.compilable(f, s.mutate(f, line))
	derivedMutations.Add(key, list)
	return list
}

// promise is how much likely changes there are at a line, as the log of a sum of odds. Those that do not compile count too: to
// leave them out costs more than it tells.
func (s *state) promise(f *file, line int, surroundings uint64) float64 {
	key := hashInt(mix(f.contentKey())^surroundings, line)
	if known, ok := derivedPromises.Get(key); ok {
		return known
	}
	sum := 0.0
	variants := map[string]float64{}
	for _, m := range s.mutate(f, line) {
		variants[m.op]++
	}
	for _, op := range slices.Sorted(maps.Keys(variants)) {
		sum += variants[op] * math.Exp(operatorOffset(op, variants[op]))
	}
	promise := math.Log(max(sum, math.SmallestNonzeroFloat64))
	derivedPromises.Add(key, promise)
	return promise
}

func (f *file) derive() *fileFacts {
	if f.facts != nil {
		return f.facts
	}
	key := f.contentKey()
	facts, ok := derivedFacts.Get(key)
	if !ok {
		facts = deriveFacts(f)
		derivedFacts.Add(key, facts)
	}
	f.facts = facts
	return facts
}

// hold keeps what a file was seen to contain, unless it is too much to work on.
func (f *file) hold(lines []string) {
	size := 0
	for _, line := range lines {
		size += len(line) + 1
	}
	if f.asked, f.read = true, len(lines) <= maxFileLines && size <= maxFileBytes; f.read {
		f.set(lines)
	}
}

// set gives a file new lines.
func (f *file) set(lines []string) { f.lines, f.facts, f.key = lines, nil, 0 }
