package events

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// WeightsPromoted says which version of a policy rollouts are sampled with. The last one of a policy counts; without any it is the newest.
type WeightsPromoted struct {
	// Version gets the rollouts; 0 is the newest one, as without any promotion.
	Version int64 `json:"version" jsonschema:"minimum=0"`
	// Share of the rollouts get Version, and the others Before; 0: all get Version.
	Share float64 `json:"share,omitempty" jsonschema:"minimum=0,maximum=1"`
	// Before is the version that all got before, to which a rollback returns; 0: the newest, or one that nobody named.
	Before int64 `json:"before,omitempty" jsonschema:"minimum=0"`
	// RolledBack is the version that was taken back.
	RolledBack int64 `json:"rolled_back,omitempty" jsonschema:"minimum=0"`
}

// Of is the version that a rollout of a run gets, 0 for the newest. It follows from their names and the promotion alone, so that everybody decides the same, and one that
// gets the version gets it with every greater share, too.
func (p WeightsPromoted) Of(run, rollout string) int64 {
	if p.Share == 0 {
		return p.Version
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", p.Version, run, rollout))
	if float64(binary.BigEndian.Uint64(sum[:])>>11)/(1<<53) < p.Share {
		return p.Version
	}
	return p.Before
}

// Main is the version that all rollouts get but those of a share.
func (p WeightsPromoted) Main(newest int64) int64 {
	switch {
	case p.Share > 0:
		return p.Before
	case p.Version > 0:
		return p.Version
	}
	return newest
}

// Canary is the version that a share of the rollouts gets, and Main where there is none.
func (p WeightsPromoted) Canary(newest int64) int64 {
	if p.Share > 0 {
		return p.Version
	}
	return p.Main(newest)
}

// ShareOf is the share of the rollouts that get a version by a promotion.
func (p WeightsPromoted) ShareOf(version int64) float64 {
	switch {
	case p.Version == 0:
		return 0
	case p.Share == 0 && version == p.Version:
		return 1
	case p.Share > 0 && version == p.Version:
		return p.Share
	case p.Share > 0 && version == p.Before:
		return 1 - p.Share
	}
	return 0
}
