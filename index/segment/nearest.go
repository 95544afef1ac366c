package segment

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
)

// query is a rotated vector in whole numbers: with those of the rows, sums are
// exact in whatever order.
type query struct {
	steps []int16
	scale float64
}

// querySteps is the largest number in a query: sums of MaxDimensions products stay within 31 bits.
const querySteps = 2047

func newQuery(v []float32) query {
	largest := float32(0)
	for _, x := range v {
		largest = max(largest, max(x, -x))
	}
	q := query{steps: make([]int16, len(v))}
	if largest == 0 {
		return q
	}
	q.scale = float64(largest) / querySteps
	for i, x := range v {
		step := float64(x) / q.scale
		if step < 0 {
			q.steps[i] = int16(step - 0.5)
		} else {
			q.steps[i] = int16(step + 0.5)
		}
	}
	return q
}

// dot is the inner product with a row's bytes, eight at once so that bounds are looked at once.
func dot(steps []int16, row []byte) int32 {
	var a, b, c, d int32
	for len(steps) >= 8 && len(row) >= 8 {
		s, r := (*[8]int16)(steps), (*[8]byte)(row)
		a += int32(s[0])*int32(int8(r[0])) + int32(s[4])*int32(int8(r[4]))
		b += int32(s[1])*int32(int8(r[1])) + int32(s[5])*int32(int8(r[5]))
		c += int32(s[2])*int32(int8(r[2])) + int32(s[6])*int32(int8(r[6]))
		d += int32(s[3])*int32(int8(r[3])) + int32(s[7])*int32(int8(r[7]))
		steps, row = steps[8:], row[8:]
	}
	for i := range steps {
		a += int32(steps[i]) * int32(int8(row[i]))
	}
	return a + b + c + d
}

// Neighbour is a row and its likeness to the query: about the cosine.
type Neighbour struct {
	Row      Row
	Score    float64
	Estimate bool // by signs alone, until Base.Locate
	slot     uint32
}

// nearest keeps the best rows.
type nearest struct {
	view  *View
	keep  int
	all   []Neighbour
	least float64 // below it nothing counts any more
}

func (n *nearest) add(near Neighbour) {
	if near.Score < n.least || near.Score <= 0 {
		return
	}
	if n.all = append(n.all, near); len(n.all) >= 4*n.keep {
		n.cut()
	}
}

func (n *nearest) cut() {
	n.view.sort(n.all)
	if len(n.all) >= n.keep {
		n.all = n.all[:n.keep]
		n.least = n.all[n.keep-1].Score
	}
}

func (v *View) sort(all []Neighbour) {
	slices.SortFunc(all, func(a, b Neighbour) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score),
			v.Compare(a.Row, b.Row))
	})
}

// Nearest gives the best rows by their vectors, at most so many, the best first. Rows that are not
// at all like the query are none of them. Where the index is searched by its clusters, the scores
// are estimates, and should be those of more rows than are wanted.
func (v *View) Nearest(keep int) []Neighbour {
	if v.query.scale == 0 || keep < 1 {
		return nil
	}
	var tasks []func(*nearest)
	signs := v.query.signed()
	for n, p := range v.parts {
		for _, page := range p.vectors {
			tasks = append(tasks, func(best *nearest) { best.scan(n, page) })
		}
		for _, page := range p.probed {
			tasks = append(tasks, func(best *nearest) { best.scanSigns(n, page, signs) })
		}
	}
	workers := min(runtime.GOMAXPROCS(0), len(tasks)/16+1)
	found := make([]nearest, workers)
	var group sync.WaitGroup
	for w := range workers {
		found[w] = nearest{view: v, keep: keep}
		group.Go(func() {
			for i := w; i < len(tasks); i += workers {
				tasks[i](&found[w])
			}
		})
	}
	group.Wait()
	best := &found[0]
	for w := 1; w < workers; w++ {
		best.all = append(best.all, found[w].all...)
	}
	best.cut()
	return best.all
}

func (n *nearest) scan(part int, page *vectorPage) {
	p, steps := n.view.parts[part], n.view.query.steps
	d := len(steps)
	for i, row := range page.rows {
		if page.scales[i] == 0 || !p.alive(row) || !p.contains(row) {
			continue
		}
		n.add(Neighbour{Row: Row{int32(part), row}, Score: n.view.query.score(page.vectors[i*d:(i+1)*d],
			page.scales[i])})
	}
}

// score is the inner product with a row.
func (q *query) score(row []byte, scale float32) float64 {
	return float64(dot(q.steps, row)) * float64(scale) * q.scale
}

func (n *nearest) scanSigns(part int, c probed, signs *signed) {
	p, words := n.view.parts[part], signWords(len(n.view.query.steps))
	for i := c.from; i < c.to; i++ {
		row := c.page.rows[i]
		if !p.alive(row) || !p.contains(row) {
			continue
		}
		n.add(Neighbour{Row{int32(part), row}, c.likeness +
			signs.estimate(c.page.signs[i*words:][:words])*float64(c.page.norms[i]), true, uint32(c.first + i)})
	}
}

// score replaces estimates by scores.
func (v *View) score(read *pages, near []Neighbour) {
	for i := range near {
		n := &near[i]
		if !n.Estimate {
			continue
		}
		p := v.parts[n.Row.part].part
		per := perPage(vectors, p.dimensions)
		q := page[vectorPage](read, p, vectors, int(n.slot)/per).vector(int(n.slot)%per, p.dimensions)
		n.Score, n.Estimate = v.query.score(q.bytes, q.scale), false
	}
	v.sort(near)
}
