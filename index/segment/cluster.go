package segment

import (
	"encoding/binary"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"
)

// Clusters let a query read the vectors that can be near it, in an index that is
// too large to read them all.
const (
	// ExactRows is up to how many live rows an index is searched through all its vectors, so
	// that an answer is exact.
	ExactRows = 200_000

	centroidBytes  = 50 << 10 // of a segment, at most
	trainingRows   = 64       // for each cluster
	trainingRounds = 8
	// closest is how many centroids, nearest by their signs, are compared in full.
	closest = 12
)

// tuning is from where on clusters are made and used; tests set it lower. A segment of at least
// clusteredRows is clustered, in an index that has clusteredIndex rows with it: a smaller one is
// not worth its centroids, which every manifest repeats.
type tuning struct{ exactRows, clusteredIndex, clusteredRows int }

var tuned = tuning{exactRows: ExactRows, clusteredIndex: 128 << 10, clusteredRows: 8 << 10}

// clusters is from how many rows on a segment is clustered that is beside others.
func (t *tuning) clusters(others []*part) int {
	rows := t.clusteredIndex
	for _, p := range others {
		rows -= p.liveRows()
	}
	return max(rows, t.clusteredRows)
}

// clusterCount is about 0.7 times the root of the rows: 256 clusters of 512 rows in a full segment.
func clusterCount(rows, dimensions int) int {
	return max(min(int(0.7*math.Sqrt(float64(rows))), centroidBytes/(dimensions+4)), 2)
}

// centroid is the middle of a cluster: a direction.
type centroid struct {
	quantised
	signs []uint64
}

func newCentroid(q quantised) centroid {
	c := centroid{quantised: q}
	for word := range slices.Chunk(appendSigns(nil, q.bytes), 8) {
		c.signs = append(c.signs, binary.LittleEndian.Uint64(word))
	}
	return c
}

// clusterer assigns vectors to the nearest of its centroids.
type clusterer struct {
	centroids []centroid
}

// nearest gives the centroid whose inner product with a vector is largest, among those
// that agree in most signs.
func (c *clusterer) nearest(v quantised, signs []uint64) (best int, likeness float32) {
	var at [closest]int
	var apart [closest]int
	n := 0
	for i := range c.centroids {
		d := 0
		for k, word := range c.centroids[i].signs {
			d += bits.OnesCount64(word ^ signs[k])
		}
		if n == closest && d >= apart[n-1] {
			continue
		}
		if n < closest {
			n++
		}
		place := n - 1
		for ; place > 0 && apart[place-1] > d; place-- {
			at[place], apart[place] = at[place-1], apart[place-1]
		}
		at[place], apart[place] = i, d
	}
	likeness = float32(math.Inf(-1))
	for _, i := range at[:n] {
		if l := float32(dotBytes(c.centroids[i].bytes, v.bytes)) * c.centroids[i].scale; l > likeness ||
			l == likeness && i < best {
			best, likeness = i, l
		}
	}
	return best, likeness * v.scale
}

func dotBytes(a, b []byte) (sum int32) {
	b = b[:len(a)]
	for i := range a {
		sum += int32(int8(a[i])) * int32(int8(b[i]))
	}
	return sum
}

// assign gives the nearest centroid of each vector, and how near it is.
func (c *clusterer) assign(all []quantised) (nearest []uint32, likeness []float32) {
	nearest, likeness = make([]uint32, len(all)), make([]float32, len(all))
	var group sync.WaitGroup
	for part := range slices.Chunk(indices(len(all)), len(all)/runtime.GOMAXPROCS(0)+1) {
		group.Go(func() {
			signs := make([]uint64, len(c.centroids[0].signs))
			var packed []byte
			for _, i := range part {
				packed = appendSigns(packed[:0], all[i].bytes)
				for k := range signs {
					signs[k] = binary.LittleEndian.Uint64(packed[8*k:])
				}
				best, l := c.nearest(all[i], signs)
				nearest[i], likeness[i] = uint32(best), l
			}
		})
	}
	group.Wait()
	return nearest, likeness
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// train finds centroids by spherical k-means over vectors spread evenly through all. It
// draws nothing at random.
func train(all []quantised, count int) *clusterer {
	step := max(len(all)/(count*trainingRows), 1)
	var sample []quantised
	for i := 0; i < len(all); i += step {
		if all[i].scale > 0 {
			sample = append(sample, all[i])
		}
	}
	if len(sample) == 0 {
		return &clusterer{[]centroid{newCentroid(all[0])}}
	}
	c := &clusterer{}
	for i := range min(count, len(sample)) {
		c.centroids = append(c.centroids, newCentroid(sample[i*len(sample)/min(count, len(sample))]))
	}
	for range trainingRounds {
		nearest, likeness := c.assign(sample)
		c.center(sample, nearest, likeness)
	}
	return c
}

// center moves the centroids into the middle of what is nearest to them. One that has nothing
// begins anew at a vector that is far from its own.
func (c *clusterer) center(sample []quantised, nearest []uint32, likeness []float32) {
	d := len(sample[0].bytes)
	sums, sizes := make([]float32, len(c.centroids)*d), make([]int, len(c.centroids))
	for i, v := range sample {
		sum := sums[int(nearest[i])*d:][:d]
		for k, b := range v.bytes {
			sum[k] += float32(int8(b)) * v.scale
		}
		sizes[nearest[i]]++
	}
	far := indices(len(sample))
	slices.SortStableFunc(far, func(a, b int) int {
		if likeness[a] < likeness[b] {
			return -1
		}
		if likeness[a] > likeness[b] {
			return 1
		}
		return 0
	})
	for i := range c.centroids {
		if sizes[i] == 0 {
			c.centroids[i] = newCentroid(sample[far[0]])
			far = far[1:]
			continue
		}
		c.centroids[i] = newCentroid(quantise(unit(sums[i*d:][:d])))
	}
}

func unit(v []float32) []float32 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum > 0 {
		scale := float32(1 / math.Sqrt(sum))
		for i := range v {
			v[i] *= scale
		}
	}
	return v
}

// slots gives the row at each slot, and notes the clusters in the segment.
func (b *builder) slots(o *object, all []*chunkRow) []uint32 {
	slots := make([]uint32, len(all))
	for i := range slots {
		slots[i] = uint32(i)
	}
	if len(all) < b.clusters {
		return slots
	}
	vectors := make([]quantised, len(all))
	for i, r := range all {
		vectors[i] = r.vector
	}
	c := train(vectors, clusterCount(len(all), b.dimensions))
	nearest, _ := c.assign(vectors)
	sizes := make([]int, len(c.centroids))
	for _, n := range nearest {
		sizes[n]++
	}
	slices.SortStableFunc(slots, func(x, y uint32) int { return int(nearest[x]) - int(nearest[y]) })
	for i, size := range sizes {
		o.Clusters = binary.AppendUvarint(o.Clusters, uint64(size))
		o.Centroids = binary.LittleEndian.AppendUint32(o.Centroids, math.Float32bits(c.centroids[i].scale))
		o.Centroids = append(o.Centroids, c.centroids[i].bytes...)
	}
	return slots
}

// cluster is a centroid with the slots of what is around it.
type cluster struct {
	quantised
	from, end int
}

// readCentroids reads clusters as build writes them, and newPart has checked them.
func readCentroids(sizes, centroids []byte, dimensions int) (all []cluster) {
	at := 0
	for len(sizes) > 0 {
		size, n := binary.Uvarint(sizes)
		q := quantised{bytes: centroids[4:][:dimensions],
			scale: math.Float32frombits(binary.LittleEndian.Uint32(centroids))}
		all = append(all, cluster{q, at, at + int(size)})
		sizes, centroids, at = sizes[n:], centroids[4+dimensions:], at+int(size)
	}
	return all
}

// probe is a cluster that a query looks into.
type probe struct {
	part *part
	cluster
	likeness float64
}

// Of the rows in clusters a query looks at the signs of the nearer half, and at least of so many. A
// third of them holds 94 of 100 of the ten best for questions in prose to the Go standard library,
// a half 98: such a question is near to no cluster, and signs are small.
const (
	probedShare = 2
	probedRows  = 1 << 10
)

// probes gives the clusters that are nearest to a query, of all segments
// together, or the whole of them.
func (q *query) probes(parts []*part, whole bool) []probe {
	var all []probe
	total := 0
	for _, p := range parts {
		for _, c := range p.clusters {
			all = append(all, probe{p, c, q.score(c.bytes, c.scale)})
		}
		total += p.Rows
	}
	slices.SortStableFunc(all, func(a, b probe) int {
		switch {
		case a.likeness > b.likeness:
			return -1
		case a.likeness < b.likeness:
			return 1
		}
		return 0
	})
	seen := 0
	for i := range all {
		if !whole && seen >= max(total/probedShare, probedRows) {
			return all[:i]
		}
		seen += all[i].end - all[i].from
	}
	return all
}

// signed estimates inner products of a query with vectors of which only the signs are known.
type signed struct {
	sums  [][256]int32 // for each byte of signs what its coordinates add
	scale float64
}

func (q *query) signed() *signed {
	// For a vector v of length 1 whose weight is spread evenly, q · signs of v is
	// about √(2d/π) times q · v.
	s := &signed{sums: make([][256]int32, 8*signWords(len(q.steps))),
		scale: q.scale / math.Sqrt(2*float64(len(q.steps))/math.Pi)}
	for at := range s.sums {
		for b := range 256 {
			for bit := range 8 {
				if i := at*8 + bit; i >= len(q.steps) {
					break
				} else if b&(1<<bit) != 0 {
					s.sums[at][b] -= int32(q.steps[i])
				} else {
					s.sums[at][b] += int32(q.steps[i])
				}
			}
		}
	}
	return s
}

func (s *signed) estimate(signs []uint64) float64 {
	sum := int32(0)
	for k, word := range signs {
		t := s.sums[8*k:][:8:8]
		sum += t[0][word&0xff] + t[1][word>>8&0xff] + t[2][word>>16&0xff] + t[3][word>>24&0xff] +
			t[4][word>>32&0xff] + t[5][word>>40&0xff] + t[6][word>>48&0xff] + t[7][word>>56]
	}
	return float64(sum) * s.scale
}
