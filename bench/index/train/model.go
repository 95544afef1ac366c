package main

import (
	"math"
	"math/rand/v2"
	"sync"
)

// model learns a row for each word, so that the sum of a question's rows points where that of its
// text does, and not where those of the other texts of the batch do (InfoNCE, both ways).
type model struct {
	dimensions int
	rows       []float32
	squares    []float32 // of each row, for Adagrad
	gradient   []float32 // of each row in touched
	touched    []int32
	at         []int32 // where a row's gradient is, -1 if nowhere
}

const (
	workers = 2 // the result does not depend on it
	epsilon = 1e-8
)

func newModel(rows, dimensions int, random *rand.Rand) *model {
	m := &model{dimensions: dimensions, rows: make([]float32, rows*dimensions), squares: make([]float32, rows),
		at: make([]int32, rows)}
	for i := range m.rows {
		m.rows[i] = float32(random.NormFloat64() / math.Sqrt(float64(dimensions)))
	}
	for i := range m.at {
		m.at[i] = -1
	}
	return m
}

// side is the questions of a batch, or its texts.
type side struct {
	bags    []bag
	vectors []float32 // unit length
	lengths []float32
	grads   []float32
}

func (m *model) forward(bags []bag) *side {
	d := m.dimensions
	s := &side{bags: bags, vectors: make([]float32, len(bags)*d), lengths: make([]float32, len(bags)),
		grads: make([]float32, len(bags)*d)}
	parallel(len(bags), func(i int) {
		v := s.vectors[i*d:][:d]
		for j, row := range bags[i].rows {
			axpy(bags[i].weights[j], m.rows[int(row)*d:][:d], v)
		}
		length := float32(math.Sqrt(float64(dot(v, v)))) + 1e-6
		s.lengths[i] = length
		for k := range v {
			v[k] /= length
		}
	})
	return s
}

// step learns from one batch and returns its mean loss.
func (m *model) step(questions, texts []bag, temperature, rate float32) float64 {
	d, n := m.dimensions, len(questions)
	q, t := m.forward(questions), m.forward(texts)
	logits := make([]float32, n*n)
	parallel(n, func(i int) {
		for j := range n {
			logits[i*n+j] = float32(temperature * dot(q.vectors[i*d:][:d], t.vectors[j*d:][:d]))
		}
	})
	// p[i][j] is the derivative of the loss by the logit: the mean of softmax over the row and over
	// the column, less the truth.
	rowMax, rowSum, colMax, colSum := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	parallel(n, func(i int) {
		rowMax[i], colMax[i] = logits[i*n], logits[i]
		for j := range n {
			rowMax[i], colMax[i] = max(rowMax[i], logits[i*n+j]), max(colMax[i], logits[j*n+i])
		}
		for j := range n {
			rowSum[i] += exp(logits[i*n+j] - rowMax[i])
			colSum[i] += exp(logits[j*n+i] - colMax[i])
		}
	})
	losses := make([]float64, n)
	p := make([]float32, n*n)
	scale := temperature / float32(2*n)
	parallel(n, func(i int) {
		for j := range n {
			x := logits[i*n+j]
			p[i*n+j] = scale * (exp(x-rowMax[i])/rowSum[i] + exp(x-colMax[j])/colSum[j])
		}
		p[i*n+i] -= 2 * scale
		losses[i] = math.Log(float64(rowSum[i])) - float64(logits[i*n+i]-rowMax[i])
	})
	parallel(n, func(i int) {
		for j := range n {
			axpy(p[i*n+j], t.vectors[j*d:][:d], q.grads[i*d:][:d])
			axpy(p[j*n+i], q.vectors[j*d:][:d], t.grads[i*d:][:d])
		}
		q.throughLength(i, d)
		t.throughLength(i, d)
	})
	m.learn([]*side{q, t}, rate)
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	return sum / float64(n)
}

// throughLength takes a gradient back through the division by the length.
func (s *side) throughLength(i, d int) {
	v, g := s.vectors[i*d:][:d], s.grads[i*d:][:d]
	along := dot(v, g)
	for k := range g {
		g[k] = (g[k] - float32(along*v[k])) / s.lengths[i]
	}
}

// learn adds up the gradient of each row, each worker for dimensions of its own, and
// moves the rows against it.
func (m *model) learn(sides []*side, rate float32) {
	d := m.dimensions
	m.touched = m.touched[:0]
	for _, s := range sides {
		for _, b := range s.bags {
			for _, row := range b.rows {
				if m.at[row] < 0 {
					m.at[row] = int32(len(m.touched))
					m.touched = append(m.touched, row)
				}
			}
		}
	}
	if need := len(m.touched) * d; cap(m.gradient) < need {
		m.gradient = make([]float32, need)
	}
	m.gradient = m.gradient[:len(m.touched)*d]
	clear(m.gradient)
	parallel(workers, func(w int) {
		from, to := w*d/workers, (w+1)*d/workers
		for _, s := range sides {
			for i, b := range s.bags {
				for j, row := range b.rows {
					axpy(b.weights[j], s.grads[i*d+from:i*d+to], m.gradient[int(m.at[row])*d+from:int(m.at[row])*d+to])
				}
			}
		}
	})
	parallel(len(m.touched), func(i int) {
		row := m.touched[i]
		g := m.gradient[i*d:][:d]
		m.squares[row] += dot(g, g) / float32(d)
		axpy(-rate/float32(math.Sqrt(float64(m.squares[row]+epsilon))), g, m.rows[int(row)*d:][:d])
		m.at[row] = -1
	})
}

// parallel calls for 0 to n-1, each once.
func parallel(n int, call func(int)) {
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := w * n / workers; i < (w+1)*n/workers; i++ {
				call(i)
			}
		})
	}
	group.Wait()
}

// Below conversions keep products from being fused with sums, which platforms do differently.

func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += float32(a[i] * b[i])
		s1 += float32(a[i+1] * b[i+1])
		s2 += float32(a[i+2] * b[i+2])
		s3 += float32(a[i+3] * b[i+3])
	}
	for ; i < len(a); i++ {
		s0 += float32(a[i] * b[i])
	}
	return s0 + s1 + s2 + s3
}

// axpy adds a×x to y.
func axpy(a float32, x, y []float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += float32(a * v)
	}
}

// exp for x up to 0: by powers of 2 and a polynomial, as math.Exp differs between
// platforms in its last bits.
func exp(x float32) float32 {
	if x < -80 {
		return 0
	}
	t := float32(x * (1 / math.Ln2))
	whole := float32(math.Floor(float64(t)))
	f := float32((t - whole) * math.Ln2)
	r := 1 + float32(f*(1+float32(f*(1.0/2+float32(f*(1.0/6+
		float32(f*(1.0/24+float32(f*(1.0/120+float32(f*(1.0/720))))))))))))
	return float32(math.Ldexp(float64(r), int(whole)))
}
