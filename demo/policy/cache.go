package policy

import (
	"maps"
	"math"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"
)

// What is derived from a file's text alone is derived once: the rollouts of a group, and the
// trainer after them, look at the same files again and again. Both caches hold pure functions of
// their keys, so they change nothing but the time.
var (
	derivedFacts     = newCache[*fileFacts](1024)
	derivedMutations = newCache[lineChanges](16384)
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

// lineChanges are the mutations of a line, and how much likely ones there are, as
// the log of a sum of odds.
type lineChanges struct {
	list    []mutation
	promise float64
}

// changes lists what can be changed at a line.
func (f *file) changes(line int) lineChanges {
	key := hashInt(mix(f.contentKey()), line)
	if known, ok := derivedMutations.Get(key); ok {
		return known
	}
	c := lineChanges{list: mutate(f, line)}
	variants := map[string]float64{}
	for _, m := range c.list {
		variants[m.op]++
	}
	sum := 0.0
	for _, op := range slices.Sorted(maps.Keys(variants)) {
		sum += variants[op] * math.Exp(operatorOffset(op, variants[op]))
	}
	c.promise = math.Log(max(sum, math.SmallestNonzeroFloat64))
	derivedMutations.Add(key, c)
	return c
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
