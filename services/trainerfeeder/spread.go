package trainerfeeder

import (
	"github.com/rondo-rl/rondo/advantage/packing"
	"github.com/rondo-rl/rondo/storage"
)

// rank is one data-parallel rank's part of a batch.
type rank struct {
	storage.Batch
	members []*trained
}

// spread spreads whole groups over the feed's ranks, balanced by what they cost, and packs each
// rank's samples where the feed says so.
func (d *Decider) spread(groups [][]*trained) ([]rank, error) {
	model, limit := "", 0
	if m := d.feed.MicroBatch; m != nil {
		model, limit = m.Cost, m.Tokens
	}
	cost, err := packing.Model(model)
	if err != nil {
		return nil, err
	}
	costs := make([]float64, len(groups))
	for i, g := range groups {
		for _, m := range g {
			for k := range m.samples {
				costs[i] += cost(len(m.samples[k].Tokens))
			}
		}
	}
	ranks := make([]rank, d.feed.RankCount())
	for i, r := range packing.Balance(costs, len(ranks)) {
		ranks[r].members = append(ranks[r].members, groups[i]...)
	}
	if limit > 0 {
		pack(ranks, limit, cost)
	}
	return ranks, nil
}

// pack gives every sample its micro-batch.
func pack(ranks []rank, limit int, cost packing.Cost) {
	tokens := make([][]int, len(ranks))
	for r := range ranks {
		for _, s := range ranks[r].samples() {
			tokens[r] = append(tokens[r], len(s.Tokens))
		}
	}
	places, count := packing.Pack(tokens, limit, cost)
	for r := range ranks {
		ranks[r].MicroBatches = count
		for i, s := range ranks[r].samples() {
			s.MicroBatch = int32(places[r][i])
		}
	}
}

func (r *rank) samples() (all []*storage.Sample) {
	for _, m := range r.members {
		for i := range m.samples {
			all = append(all, &m.samples[i])
		}
	}
	return all
}

// fill lays the rank's samples out as rows.
func (r *rank) fill() {
	for _, s := range r.samples() {
		r.Samples = append(r.Samples, *s)
	}
}
