package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
)

// byAffinity orders servers by rendezvous hashing: every process finds the same order for a name, a
// name's first server changes only when that one comes or goes, and a server is the first of as
// many names as its slots are of all.
func byAffinity(targets []target, name string) {
	scores := make(map[*replica]float64, len(targets))
	for _, t := range targets {
		scores[t.replica] = score(t, name)
	}
	slices.SortStableFunc(targets, func(a, b target) int { return cmp.Compare(scores[b.replica], scores[a.replica]) })
}

func score(t target, name string) float64 {
	sum := sha256.Sum256([]byte(name + "\n" + t.url))
	part := (float64(binary.BigEndian.Uint64(sum[:8])>>11) + 0.5) / (1 << 53) // between 0 and 1, neither of them
	return -float64(t.slots) / math.Log(part)
}

// servingLast puts the servers last that are known to serve another version of the policy.
func servingLast(targets []target, policy string, version int64) {
	other := func(t target) int {
		if serves, known := t.versions[policy]; known && serves != version {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(targets, func(a, b target) int { return other(a) - other(b) })
}

func dropReplica(targets []target, r *replica) []target {
	return slices.DeleteFunc(targets, func(t target) bool { return t.replica == r })
}
