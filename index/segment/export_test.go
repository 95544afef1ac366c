package segment

// Cluster makes an index cluster its segments, and search through them, from so many rows on.
func (b *Base) Cluster(rows int) *Base {
	b.tuning = tuning{rows, rows, rows}
	return b
}

// Clusters is how many clusters the index has.
func (b *Base) Clusters() (n int) {
	for _, p := range b.parts {
		n += len(p.clusters)
	}
	return n
}
